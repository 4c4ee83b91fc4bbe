"""The folders of the model ``tensorrt_llm`` import one way: engines and the CPU double rest on the wire alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

VERSION = Path(__file__).parents[2] / "triton_repo" / "tensorrt_llm" / "1"
FOLDERS = ("wire", "engines", "cpu_double")


def imports(file: Path) -> Iterator[str]:
    """Modules that a file imports, at its top or within."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: a relative import"
            yield str(node.module)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_itself_and_the_wire(folder) -> None:
    files = sorted((VERSION / folder).rglob("*.py"))
    own = {name.partition(".")[0] for file in files for name in imports(file)} & {*FOLDERS}
    assert own <= {folder, "wire"}
    assert len(files) > 5


def test_only_adapters_know_triton() -> None:
    knowing = {file.name for file in VERSION.rglob("*.py") if "triton_python_backend_utils" in {*imports(file)}}
    assert knowing == {"base_adapter.py", "llm_adapter.py", "reference_adapter.py"}
