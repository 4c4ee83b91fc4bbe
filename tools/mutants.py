"""Changes one operator or number of a module at a time, and counts the changes that its tests notice.

``python -m tools.mutants TREE`` runs a sample on copies of a tree. The same code gives the same mutants in two trees.
"""

import argparse
import ast
import contextlib
import copy
import hashlib
import itertools
import json
import os
import queue
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
from typing import Any, Final, NamedTuple

_PARSERS: Final = ("json_calls", "tagged_calls", "gemma_calls", "bare_calls", "harmony")
# Of each subject: its modules, and the tests that protect it.
_TABLE: Final[dict[str, tuple[str, str]]] = {
    "detokenizer": ("gateway/text/tokens/detokenizer.py", "tests/tokens/test_detokenizer.py tests/generation"),
    "stop": ("gateway/generation/stop.py", "tests/generation"),
    "sampler": (
        "triton_repo/tensorrt_llm/1/cpu_double/sampler.py",
        "tests/engine/test_engine_drafts.py tests/engine/test_engine_log_probs.py tests/engine/test_engine_contract.py"
        " tests/engine/test_engine_guided.py",
    ),
    **{
        name: (
            f"gateway/text/families/{name}.py",
            "tests/families/test_recorded.py::test_the_whole_output_means_these_events tests/families/test_arbitrary.py"
            " tests/families/test_bare_arguments.py tests/families/test_lenient.py tests/families/test_malformed.py",
        )
        for name in _PARSERS
    },
    "conversation": (
        "gateway/text/prompt/conversation.py gateway/text/prompt/history.py",
        "tests/prompt/test_history.py tests/prompt/test_chat_template.py tests/openai/test_chat_history.py",
    ),
    "capabilities": (
        "gateway/serving/capabilities.py gateway/api/openai/parameters/check.py gateway/api/openai/parameters/table.py",
        "tests/openai/test_parameter_table.py tests/openai/test_refused_parameters.py tests/triton/test_capabilities.py"
        " tests/serving/test_text_losses.py",
    ),
}
_SWAPS: Final[dict[type[ast.AST], type[Any]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
_ENDS: Final = ("killed", "survived", "timed out", "not run")


class Mutant(NamedTuple):
    """A change: ``field`` of a file's ``node``-th node becomes ``value``."""

    subject: str
    file: str
    node: int
    field: str
    value: Any
    what: str


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        yield "ops", [_SWAPS[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)) and type(node.op) in _SWAPS:
        yield "op", _SWAPS[type(node.op)]()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operand", ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield from (("value", node.value + step) for step in (1, -1))
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "value", ast.Constant(None)
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield "__class__", _SWAPS[type(node)]
    elif isinstance(node, ast.Slice):
        yield "lower", None if node.lower else ast.Constant(1)
        yield "upper", None if node.upper else ast.Constant(-1)


def _changed(node: ast.AST, field: str, value: Any) -> str:
    setattr(node, field, value)
    return ast.unparse(ast.fix_missing_locations(node))


def _mutants(root: Path, subject: str, file: str, seed: int) -> Iterator[tuple[str, Mutant]]:
    """All mutants of a file, each by a digest of its line; annotations stay as they are."""
    source = (root / file).read_text("utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    notes = [getattr(node, name, None) for node in nodes for name in ("annotation", "returns")]
    unchanged = {id(inner) for note in notes if note for inner in ast.walk(note)}
    seen: Counter[str] = Counter()
    for index, node in enumerate(nodes):
        for field, value in () if id(node) in unchanged else _changes(node):
            line = getattr(node, "lineno", 0)
            what = f"{ast.unparse(node)[:70]}  ->  {_changed(copy.deepcopy(node), field, value)[:70]}"
            code = f"{seed} {Path(file).name} {source.splitlines()[line - 1].strip()} {what}"
            seen[code] += 1
            digest = hashlib.sha256(f"{code} {seen[code]}".encode()).hexdigest()
            yield digest, Mutant(subject, file, index, field, value, f"{file}:{line}: {what}")


def _run(tree: Path, tests: str, limit: float) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long", *tests.split()]
    variables = {**os.environ, "PYTHONPATH": str(tree)}
    null = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=tree, env=variables, stdout=null, stderr=null, start_new_session=True
    ) as process:
        try:
            return "killed" if process.wait(limit) else "survived"
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class Trees:
    """Copies of a tree, in each of which one mutant at a time is tested, until ``ends``."""

    def __init__(self, root: Path, folder: str, copies: int, ends: float) -> None:
        self._ends = ends
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._stamps = itertools.count(1)  # as times of files, so that no byte code of another mutant is taken
        ignored = shutil.ignore_patterns(".git", ".venv", ".hypothesis", "build", "*.egg-info")
        for number in range(copies):
            self._free.put(shutil.copytree(root, Path(folder, str(number)), symlinks=True, ignore=ignored))

    def clean(self, tests: str) -> float:
        """Seconds of tests without a change."""
        tree, start = self._free.get(), time.monotonic()
        end, seconds = _run(tree, tests, 120), time.monotonic() - start
        self._free.put(tree)
        if end != "survived":
            sys.exit(f"Without a change: {end}: {tests}")
        return seconds

    def test(self, mutant: Mutant, tests: str, limit: float) -> str:
        """One of `_ENDS`."""
        if time.monotonic() + limit > self._ends:
            return "not run"
        tree = self._free.get()
        file, stamp = tree / mutant.file, next(self._stamps)
        source = file.read_text("utf-8")
        module = ast.parse(source)
        nodes = list(ast.walk(module))
        setattr(nodes[mutant.node], mutant.field, mutant.value)
        file.write_text(ast.unparse(ast.fix_missing_locations(module)), "utf-8")
        os.utime(file, (stamp, stamp))
        end = _run(tree, tests, limit)
        file.write_text(source, "utf-8")
        self._free.put(tree)
        return end


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--table", type=Path, help="JSON: an object of subjects: [modules, tests], split at spaces")
    for name, preset in (("sample", 150), ("seed", 0), ("workers", os.cpu_count()), ("seconds", 3600)):
        parser.add_argument(f"--{name}", type=int, default=preset)
    return parser.parse_args()


def main() -> None:
    """Run a sample: as many mutants of each subject."""
    asked, start = _arguments(), time.monotonic()
    table = json.loads(asked.table.read_text("utf-8")) if asked.table else _TABLE
    chosen: dict[str, Mutant] = {}
    for number, (subject, (files, _)) in enumerate(table.items(), 1):
        found = dict(pair for file in files.split() for pair in _mutants(asked.tree, subject, file, asked.seed))
        wanted = asked.sample * number // len(table) - asked.sample * (number - 1) // len(table)
        chosen |= {digest: found[digest] for digest in sorted(found)[:wanted]}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.workers) as pool:
        trees = Trees(asked.tree, folder, asked.workers, start + asked.seconds)
        clean = dict(zip(table, pool.map(lambda row: trees.clean(row[1]), table.values()), strict=True))
        print("seconds without a change:", *(f"{subject} {seconds:.1f}" for subject, seconds in clean.items()))
        mutants = [chosen[digest] for digest in sorted(chosen)]
        run = pool.map(lambda each: trees.test(each, table[each.subject][1], max(10, 3 * clean[each.subject])), mutants)
        ends = list(zip(mutants, run, strict=True))
    for mutant, end in sorted(ends, key=lambda pair: (pair[0].subject, pair[1])):
        if end != "killed":
            print(f"{end}: {mutant.what}")
    for subject in (*table, "all"):
        counts = Counter(end for mutant, end in ends if subject in (mutant.subject, "all"))
        print(f"{subject:13}", ", ".join(f"{counts[end]} {end}" for end in _ENDS))
    print(f"{time.monotonic() - start:.0f} s, seed {asked.seed}")


if __name__ == "__main__":
    main()
