"""What the gateway imports is what ``pip install .`` brings."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

GATEWAY = Path(__file__).parents[3] / "gateway"
# Folders whose imports an extra brings, and a package that is pydantic's other half.
EXTRAS = ("deployment", "bench")
PARTS = {"pydantic-core"}


def imported() -> Iterator[tuple[str, Path]]:
    for path in GATEWAY.rglob("*.py"):
        if path.relative_to(GATEWAY).parts[0] in EXTRAS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            yield from ((name, path) for name in names)


def test_every_import_is_declared() -> None:
    project = (GATEWAY.parent / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = (\[.*?^\])", project, re.DOTALL | re.MULTILINE)
    declared = {normal(re.split(r"[<>=;\[ ]", one)[0]) for one in ast.literal_eval(listed)} | PARTS
    providers = packages_distributions()
    missing = {
        (name, str(path.relative_to(GATEWAY)))
        for name, path in imported()
        if (root := name.partition(".")[0]) not in sys.stdlib_module_names and root != "gateway"
        if not declared & {normal(one) for one in providers.get(root, [])}
    }
    assert missing == set()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
