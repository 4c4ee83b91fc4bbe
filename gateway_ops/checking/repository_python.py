"""The Python files of a model, read and not run: what keeps Triton's Python backend from loading it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway_ops.checking.findings import Finding, Severity

_CLASS = "TritonPythonModel"
# Files of this project's models that nothing else is called like. Other modules may be installed where Triton runs.
OWN_MODULES = frozenset({"cpu_double", "text_to_tokens", "tokens_to_text", "speculation", "step_tensors"})
# And these of the engine's, where one of its marks lies beside them.
OWN_GENERIC_MODULES = frozenset({"wire", "engines"})
_ENGINE_MARKS = ("cpu_double", "engines.llm_adapter")
_FIX = "Copy the file anew, or render the model anew."


def check_python(folder: Path, entry: str) -> Iterator[Finding]:
    """Check that every file parses, that the entry has its class, and that what the model brings along is there.

    Args:
        folder: of a version.
        entry: the file that the backend runs; it is there.
    """
    for path in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            deep = isinstance(error, RecursionError | MemoryError)
            reason = "it is nested too deeply" if deep else getattr(error, "msg", error)
            what = f"Python cannot read it: {reason}."
            yield Finding(Severity.ERROR, f"{path}:{line}", what, _FIX)
            continue
        if path == folder / entry and not _has_class(tree):
            what = f"It has no class {_CLASS}, which the Python backend makes."
            yield Finding(Severity.ERROR, f"{path}:1", what, _FIX)
        for module, line in _missing(tree, path, folder) if _is_importable(path, folder) else ():
            what = f"It imports {module}, which is not there."
            yield Finding(Severity.ERROR, f"{path}:{line}", what, "Copy the model's other Python files as well.")


def _has_class(tree: ast.Module) -> bool:
    """Whether a class of that name is made, imported or assigned; of a star nobody knows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == _CLASS:
            return True
        if isinstance(node, ast.ImportFrom) and {alias.asname or alias.name for alias in node.names} & {_CLASS, "*"}:
            return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == _CLASS:
            return True
    return False


def _missing(tree: ast.Module, path: Path, folder: Path) -> Iterator[tuple[str, int]]:
    """Modules that cannot be there: this project's own, those of a package beside, and relative ones."""
    own = any(_exists(folder, name) for name in _ENGINE_MARKS)
    for node in _certain(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = path.parents[node.level - 1]
            names = [f"{node.module}"] if node.module else _submodules(node, package)
            # The outermost package is the version folder: Triton imports model.py as 1.model.
            found = [name for name in names if not package.is_relative_to(folder) or not _exists(package, name)]
            dots = "." * node.level
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [f"{node.module}"]
            found = [name for name in names if _is_local(name, folder, own=own) and not _exists(folder, name)]
            dots = ""
        yield from ((f"{dots}{name}", node.lineno) for name in found)


def _is_importable(path: Path, folder: Path) -> bool:
    """Whether a file is a module of the model's, and nothing that merely lies below it."""
    between = path.relative_to(folder).parents[:-1]
    return all((folder / parent / "__init__.py").is_file() for parent in between)


def _certain(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that are made whatever comes; none that are tried, or that stand under a condition."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not isinstance(child, ast.Try | ast.If | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield from _certain(child)


def _submodules(node: ast.ImportFrom, package: Path) -> list[str]:
    """Names of ``from . import ...`` that only a module can be: where ``__init__.py`` may not define them."""
    return [] if (package / "__init__.py").is_file() else [alias.name for alias in node.names if alias.name != "*"]


def _is_local(name: str, folder: Path, *, own: bool) -> bool:
    first = name.partition(".")[0]
    if first in sys.stdlib_module_names:
        return False
    return first in OWN_MODULES or (own and first in OWN_GENERIC_MODULES) or (folder / first / "__init__.py").is_file()


def _exists(folder: Path, name: str) -> bool:
    """Whether a module is there: as source, compiled, or as a package."""
    path = folder.joinpath(*name.split("."))
    return path.is_dir() or any(one.suffix in (".py", ".pyc", ".so") for one in path.parent.glob(f"{path.name}.*"))
