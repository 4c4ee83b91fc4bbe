"""Changes one operator or number of a module at a time, and counts the changes that its tests notice.

``python -m tools.mutants TREE`` runs a sample on copies of a tree. The same code gives the same mutants in two trees.
"""

import argparse
import ast
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

# Of each subject: its modules, and the tests that protect it.
_TABLE: Final[dict[str, tuple[str, str]]] = {
    "detokenizer": ("gateway/text/tokens/detokenizer.py", "tests/tokens/test_detokenizer.py tests/generation"),
    "stop": ("gateway/generation/stop.py", "tests/generation"),
    "sampler": (
        "triton_repo/tensorrt_llm/1/cpu_double/sampler.py",
        "tests/engine/test_engine_drafts.py tests/engine/test_engine_log_probs.py tests/engine/test_engine_contract.py"
        " tests/engine/test_engine_guided.py",
    ),
    "families": (
        "gateway/text/families/*_calls.py gateway/text/families/harmony.py",
        "tests/families/test_recorded.py::test_the_whole_output_means_these_events tests/families/test_arbitrary.py"
        " tests/families/test_bare_arguments.py tests/families/test_lenient.py tests/families/test_malformed.py",
    ),
    "conversation": (
        "gateway/text/prompt/conversation.py gateway/text/prompt/history.py",
        "tests/prompt/test_probing.py tests/prompt/test_chat_template.py tests/openai/test_chat_tools.py",
    ),
    "capabilities": (
        "gateway/serving/capabilities.py gateway/api/openai/parameters/check.py gateway/api/openai/parameters/table.py",
        "tests/openai/test_parameter_table.py tests/triton/test_capabilities.py tests/serving/test_text_losses.py",
    ),
}
_SWAPS: Final[dict[type[ast.AST], type[Any]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Fields of a node and their other values."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        yield "ops", [_SWAPS[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)) and type(node.op) in _SWAPS:
        yield "op", _SWAPS[type(node.op)]()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operand", ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield from [("value", node.value + 1), ("value", node.value - 1)]
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "value", ast.Constant(None)
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield "__class__", _SWAPS[type(node)]
    elif isinstance(node, ast.Slice):
        yield "lower", None if node.lower else ast.Constant(1)
        yield "upper", None if node.upper else ast.Constant(-1)


def _mutants(file: Path, seed: int) -> Iterator[tuple[str, Path, str, str]]:
    """Digests, by which a sample is taken, with the file, the change and the changed source."""
    source = file.read_text("utf-8")
    module = ast.parse(source)
    for node in list(ast.walk(module)):
        for field, value in _changes(node):
            line, before, kept = getattr(node, "lineno", 0), ast.unparse(node), getattr(node, field)
            setattr(node, field, value)
            change = f"{before[:70]}  ->  {ast.unparse(node)[:70]}"
            code = f"{seed} {file.name} {source.splitlines()[line - 1].strip()} {change}"
            digest = hashlib.sha256(code.encode()).hexdigest()
            yield digest, file, f"{file}:{line}: {change}", ast.unparse(module)
            setattr(node, field, kept)


def _run(tree: Path, tests: str, limit: float) -> str:
    command = ["timeout", "-s", "KILL", str(limit), sys.executable, "-m", "pytest", "-x", "-q", "-m", "not long"]
    variables = {**os.environ, "PYTHONPATH": str(tree.resolve()), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run([*command, *tests.split()], cwd=tree, env=variables, capture_output=True, check=False)
    return {0: "survived", -signal.SIGKILL: "timed out"}.get(done.returncode, "killed")


def _test(root: Path, tests: str, limit: float, mutant: tuple[str, Path, str, str]) -> str:
    _, file, _, source = mutant
    ignored = shutil.ignore_patterns(".git", ".venv", ".hypothesis", "build", "*.egg-info")
    with tempfile.TemporaryDirectory() as folder:
        tree = shutil.copytree(root, Path(folder, "tree"), symlinks=True, ignore=ignored)
        (tree / file.relative_to(root)).write_text(source, "utf-8")
        return _run(tree, tests, limit)


def main() -> None:
    """Run a sample of each subject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--table", type=Path, help="JSON: an object of subjects: [modules, tests], split at spaces")
    for name, preset in (("sample", 20), ("seed", 0), ("workers", os.cpu_count())):
        parser.add_argument(f"--{name}", type=int, default=preset)
    asked = parser.parse_args()
    for subject, (files, tests) in (json.loads(asked.table.read_text("utf-8")) if asked.table else _TABLE).items():
        start = time.monotonic()
        if _run(asked.tree, tests, 600) != "survived":
            sys.exit(f"{subject}: its tests fail without a change")
        test = functools.partial(_test, asked.tree, tests, max(10, 5 * (time.monotonic() - start)))
        paths = [path for pattern in files.split() for path in asked.tree.glob(pattern)]
        mutants = sorted(each for path in paths for each in _mutants(path, asked.seed))[: asked.sample]
        with ThreadPoolExecutor(asked.workers) as pool:
            ends = list(pool.map(test, mutants))
        print(f"{subject}:", ", ".join(f"{count} {end}" for end, count in Counter(ends).items()))
        for (_, _, change, _), end in zip(mutants, ends, strict=True):
            if end != "killed":
                print(f"  {end}: {change}")


if __name__ == "__main__":
    main()
