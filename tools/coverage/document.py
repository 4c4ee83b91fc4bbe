"""The coverage in docs/reference/served.md: the TensorRT-LLM backend's README row by row, from tables and tests.

Run ``python -m tools.coverage.document`` in the root of the repository.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway.text.contract import BLS, ENSEMBLE, TENSORRT_LLM, ModelSpec, TensorSpec
from gateway_ops.repository.template_variables import VARIABLES, Variable
from tools.coverage.features import METRICS, MODES, STEPS
from tools.coverage.llmapi import LLMAPI
from tools.coverage.row import Entry, Row
from tools.coverage.scripts import CLIENTS, LAUNCHER, TOOLS
from tools.coverage.tensors import INPUTS, OLDER_INPUTS, OLDER_OPTIONS, OLDER_OUTPUTS, OUTPUTS
from tools.generated_part import replaced

_TESTS = Path("tests")
_MODELS: tuple[ModelSpec, ...] = (ENSEMBLE, BLS, TENSORRT_LLM)
_OPTION_TEST = "gateway_ops/repository/test_overrides.py::test_an_option_reaches_its_configuration"
_REJECTED_TEST = "gateway_ops/repository/test_overrides.py::test_what_cannot_be_set_says_why"

_STATUSES = ("served", "relayed", "rendered", "rejected", "documented", "missing")

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "served.md"
PART: Final = "coverage"
_HEAD = """\

## Coverage of the TensorRT-LLM backend

The READMEs and the configuration page of
[tensorrtllm_backend](https://github.com/triton-inference-server/tensorrtllm_backend) (0.5 to 0.19) and of TensorRT-LLM
1.2.1, and the well-known tutorial for Llama 3, row by row, with the number of [the test](#tests) that shows it:

- **served**: it works here, in the real Triton with this project's engines, or in the gateway.
- **relayed**: it is passed on as it comes; no engine here makes it, and what makes it was not run.
- **rendered**: it is written into configurations and scripts as upstream wants it, and TensorRT-LLM itself does it. Nothing
  of TensorRT-LLM was run: its engines and NVIDIA's images need hardware that the tests do not have.
- **rejected**: an error names it.
- **documented**: nothing here does it or stands in its way; the row says what to do.
- **missing**: not there yet; where a request can ask for it, it is rejected by its name.
"""


def render(tests: Path) -> str:
    """The part of the page.

    Raises:
        LookupError: a row names a test that is not there, or a tensor has no row.
    """
    sections = rows_by_section()
    known = _known_tests(tests)
    rows = [row for section in sections.values() for row in section]
    untested = ("documented", "missing")
    wrong = [row for row in rows if (row.test not in known) != (row.status in untested and not row.test)]
    if wrong:
        raise LookupError(f"rows without their test: {', '.join(f'{row.name} ({row.test})' for row in wrong)}")
    parts = [_HEAD, *_summary(rows)]
    numbers = {test: number for number, test in enumerate(dict.fromkeys(row.test for row in rows if row.test), 1)}
    for title, section in sections.items():
        parts += [f"### {title}\n", *_table(section, numbers)]
    parts += ["### Not there yet\n"]
    for title, section in sections.items():
        parts += [
            f"- {row.name} ({title[0].lower()}{title[1:]}): {row.where}" for row in section if row.status == "missing"
        ]
    parts += ["", "### Tests\n", "Below `tests/`, by the numbers of the tables.\n"]
    parts += [f"{number}. `{test}`" for test, number in numbers.items()]
    return "\n".join([*parts, ""])


def rows_by_section() -> dict[str, list[Row]]:
    """The rows of the page, by the titles of its sections.

    Raises:
        LookupError: a tensor of the contract has no row.
    """
    names = {variable.name for variable in VARIABLES}
    engine_inputs = [tensor for tensor in TENSORRT_LLM.inputs if not tensor.extension]
    return {
        "Steps": list(STEPS),
        "Modes and features": list(MODES),
        "Options of the configurations": [
            *(_option(variable) for variable in VARIABLES),
            *(row for row in OLDER_OPTIONS if row.name not in names),
        ],
        "Inputs": [*(_tensor(tensor, INPUTS) for tensor in _tensors("inputs")), *OLDER_INPUTS],
        "Outputs": [*(_tensor(tensor, OUTPUTS) for tensor in _tensors("outputs")), *OLDER_OUTPUTS],
        "Inputs on the LLM API engine": [_tensor(tensor, LLMAPI) for tensor in engine_inputs],
        "Metrics": list(METRICS),
        "Arguments of the client scripts": list(CLIENTS),
        "Options of the launcher": list(LAUNCHER),
        "Flags of the tools that make engines": list(TOOLS),
    }


def _summary(rows: list[Row]) -> Iterator[str]:
    counts = [f"{sum(row.status == status for row in rows)} {status}" for status in _STATUSES]
    yield f"{len(rows)} rows: {', '.join(counts)}.\n"


def _table(rows: Iterable[Row], tests: Mapping[str, int]) -> Iterator[str]:
    yield "| upstream | here | | test |"
    yield "|---|---|---|---|"
    for row in rows:
        yield f"| {_code(row.name)} | {row.where} | {row.status} | {tests.get(row.test, '')} |"
    yield ""


def _code(name: str) -> str:
    return f"`{name}`" if name.startswith("-") or (name.islower() and " " not in name) else name


def _option(variable: Variable) -> Row:
    if variable.rejected:
        return Row(variable.name, variable.rejected, _REJECTED_TEST, "rejected")
    default = "mandatory" if variable.required else f"upstream's default: {variable.default}"
    return Row(variable.name, f"`{variable.key}` ({default})", _OPTION_TEST, "rendered")


def _tensors(kind: str) -> Iterator[TensorSpec]:
    """Each tensor of upstream once, in the order of the models."""
    seen: set[str] = set()
    for model in _MODELS:
        for tensor in getattr(model, kind):
            if tensor.name not in seen and not tensor.extension:
                seen.add(tensor.name)
                yield tensor


def _tensor(tensor: TensorSpec, entries: Mapping[str, Entry]) -> Row:
    if tensor.name not in entries:
        raise LookupError(f"the tensor {tensor.name!r} has no row in tools/coverage/")
    where, test, status = entries[tensor.name]
    return Row(tensor.name, where, test, status)


@functools.cache
def _known_tests(folder: Path) -> set[str]:
    """``file::function`` of every test, without running anything."""
    found = set()
    for path in folder.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(f"{path.relative_to(folder).as_posix()}::{node.name}")
    return found


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), PART, render(_TESTS)), encoding="utf-8")
