"""``make house``: counts that tell whether the repository is easy to read; a number each, beside its goal."""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.request_trace import trace_request

ROOT = Path(__file__).parents[1]
# Citations of the wire contract in a form that tests/docs/test_wire_contract.py does not follow to its section.
_CITATION = re.compile(r"contract[^\n]{0,12}sections?\s+\d", re.IGNORECASE)
# Names that are not also English words, so that each occurrence is the parameter.
_PARAMETERS = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "length_penalty", "logit_bias", "bad_words", "stop_token_ids", "include_stop_str_in_output", "min_tokens",
    "ignore_eos", "skip_special_tokens", "prompt_logprobs", "return_token_ids", "num_draft_tokens", "prompt_table",
    "use_beam_search", "best_of", "top_logprobs", "parallel_tool_calls", "tool_choice", "max_completion_tokens",
)  # fmt: skip


def _python(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def files_naming(parameter: str) -> int:
    """Files of the server in which a request parameter is named."""
    pattern = re.compile(rf"\b{parameter}\b")
    return sum(pattern.search(file.read_text()) is not None for file in _python("gateway"))


def module_docstrings() -> Iterator[tuple[Path, str]]:
    """The docstring of each module of the server."""
    for file in _python("gateway"):
        yield file, ast.get_docstring(ast.parse(file.read_text())) or ""


def tracked() -> list[Path]:
    """Text files under version control."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if Path(name).suffix in {".py", ".md", ".toml", ".yml", ".yaml"}]


def measures(*, trace: bool = True) -> dict[str, object]:
    """All counts by name; those of a traced request only with ``trace``, because they start a server."""
    server, tests = _python("gateway"), _python("tests")
    names = Counter(file.name for file in server if file.name != "__init__.py")
    counts = sorted(files_naming(parameter) for parameter in _PARAMETERS)
    unopened = sum(
        len(_CITATION.findall(file.read_text(errors="replace"))) for file in tracked() if file.name != "house.py"
    )
    found: dict[str, object] = {
        "server_files": len(server),
        "server_lines": _lines(server),
        "python_lines_outside_tests": _lines(
            [ROOT / f for f in tracked() if f.suffix == ".py" and "tests" not in f.parts]
        ),
        "test_lines": _lines(tests),
        "files_naming_a_parameter": f"{counts[0]} to {counts[-1]} (median {statistics.median(counts):g})",
        "module_docstrings_that_begin_with_what_or_who": sum(
            text.startswith(("What ", "Who ", "Whatever ", "Whoever ")) for _, text in module_docstrings()
        ),
        "citations_that_cannot_be_opened": unopened,
        "file_names_used_more_than_twice": {name: count for name, count in sorted(names.items()) if count > 2},
    }
    if trace:
        request = trace_request()
        found |= {
            "request_calls": len(request.calls), "request_functions": request.functions,
            "request_files": request.files, "request_room_changes": request.room_changes,
        }  # fmt: skip
    return found


def main() -> None:
    """Print the counts, or the calls of the traced request one by one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print each call of the traced request")
    if parser.parse_args().calls:
        for file, name in trace_request().calls:
            print(f"{file}:{name}")
        return
    for name, value in measures().items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
