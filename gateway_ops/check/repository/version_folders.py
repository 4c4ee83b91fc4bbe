"""Checks the version folders of a model and their files.

Python files are parsed but not run, to find faults for which Triton's Python backend does not load them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from gateway.settings.deployment_settings import EngineKind
from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import at, filled
from gateway_ops.repository.model_folders import ModelFolder

_NEEDS_FILE = {"python": "model.py"}
_CANONICAL = re.compile(r"0|[1-9][0-9]*", re.ASCII)
# Triton reads a folder's name as C's strtoll does: blanks, a sign, digits, and any rest.
_READ_AS = re.compile(r"\s*([+-]?[0-9]+)", re.ASCII)
_MOST = 2**63 - 1
_NO_VERSIONS = frozenset({"__pycache__", "warmup", "initial_state", "configs"})


def check_versions(model: ModelFolder) -> Iterator[Finding]:
    """Check that Triton finds a version to load, with the files that its backend runs."""
    numbers = version_numbers(model)
    beyond = [version for version in model.versions if _CANONICAL.fullmatch(version) and int(version) > _MOST]
    if beyond:
        what = f"The folder {beyond[0]}/ is a number of more than 64 bits: Triton exits at startup."
        yield Finding(Severity.ERROR, str(model.path), what, "Name version folders 1, 2, 3.")
    elif not numbers:
        yield Finding(Severity.ERROR, str(model.path), "A version folder such as 1/ is missing.", _how_to_make(model))
        return
    for version in model.versions:
        if version not in _NO_VERSIONS and not _CANONICAL.fullmatch(version):
            yield _name_finding(model, version, numbers)
    loaded, missing = _loaded_versions(model, numbers)
    if missing:
        severity = Severity.WARNING if loaded else Severity.ERROR
        there = ", ".join(f"{number}/" for number in numbers)
        what = f"version_policy asks for version {missing[0]}, but the repository has only {there}."
        where = at(model, "specific" if model.line_of("specific") else "version_policy")
        yield Finding(severity, where, what, "Remove version_policy, or name an existing version.")
    yield from _check_files(model, loaded)


def version_numbers(model: ModelFolder) -> list[int]:
    """The existing versions by their folders' names, in order."""
    numbers = [int(version) for version in model.versions if _CANONICAL.fullmatch(version)]
    return sorted(number for number in numbers if number <= _MOST)


def loaded_versions(model: ModelFolder) -> list[int]:
    """The versions that Triton loads by the model's policy."""
    return _loaded_versions(model, version_numbers(model))[0]


def _how_to_make(model: ModelFolder) -> str:
    meant = [(version, int(match[1])) for version in model.versions if (match := _READ_AS.match(version))]
    if meant and meant[0][1] > 0:
        return f"Rename {meant[0][0]}/ to {meant[0][1]}/: Triton requires a number without leading zeros."
    return f"Create it: mkdir {model.path / '1'} (git does not keep empty folders: put a .gitkeep into it)."


def _name_finding(model: ModelFolder, version: str, numbers: list[int]) -> Finding:
    """Report a folder that is not a version, or another version than it seems."""
    fix = "Name version folders by a number, or remove the folder."
    read = _READ_AS.match(version)
    if read is None or version.startswith("0"):
        zeros = " but a number with leading zeros" if read is not None else ""
        what = f"The folder {version}/ is not a version{zeros}: Triton ignores it."
        return Finding(Severity.WARNING, str(model.path), what, fix)
    number = int(read[1])
    what = f"The folder {version}/ is not a version, but Triton reads it as {number}, and looks for that folder."
    severity = Severity.WARNING if number in numbers else Severity.ERROR
    return Finding(severity, str(model.path), what, fix)


def _loaded_versions(model: ModelFolder, there: list[int]) -> tuple[list[int], list[int]]:
    """The versions that Triton loads by the policy, and those that it misses (ModelVersionPolicy)."""
    policy = model.config.version_policy
    if policy.WhichOneof("policy_choice") == "specific":
        asked = sorted(policy.specific.versions)
        return [version for version in asked if version in there], [one for one in asked if one not in there]
    if policy.WhichOneof("policy_choice") == "all":
        return there, []
    return there[-(policy.latest.num_versions or 1) :], []


def _check_files(model: ModelFolder, loaded: list[int]) -> Iterator[Finding]:
    needed = _NEEDS_FILE.get(model.config.backend)
    if needed is None or model.config.ensemble_scheduling.step:
        return
    wanted = model.config.default_model_filename or needed
    for version in loaded:
        folder = model.path / str(version)
        if not (folder / wanted).is_file():
            what = f"{version}/ has no {wanted}, which the Python backend runs."
            yield Finding(Severity.ERROR, str(model.path), what, "Copy the Python files, or render it again.")
            continue
        yield from check_python(folder, wanted)
        kind = filled(model, "engine")  # this project's engine model runs what its parameter says
        file, there = f"{kind}_adapter.py", {path.name for path in folder.rglob("*adapter.py")}
        own = there & {"base_adapter.py", "adapter.py"}  # the latter as `gateway repo` once rendered it
        if kind in get_args(EngineKind) and own and file not in there:
            what = f"{version}/ has no {file}, which engine {kind} runs."
            yield Finding(Severity.ERROR, str(model.path), what, "Copy the Python files, or render it again.")


_CLASS = "TritonPythonModel"
# Files of this project's models with names of their own. Other modules may be installed where Triton runs.
OWN_MODULES = frozenset(
    {
        *("cpu_double", "text_to_tokens", "tokens_to_text", "speculation", "step_tensors"),
        "bert_encoder",
        "texts_to_tokens",
    }
)
# And these of the engine's, where one of its marks lies beside them.
OWN_GENERIC_MODULES = frozenset({"wire", "engines"})
_ENGINE_MARKS = ("cpu_double", "engines.llm_adapter")
_FIX = "Copy the file again, or render the model again."


def check_python(folder: Path, entry: str) -> Iterator[Finding]:
    """Check that each file parses, that the entry has its class, and that the model's own modules exist.

    Args:
        folder: a version folder.
        entry: the file that the backend runs; it exists.
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
            what = f"It has no class {_CLASS}, which the Python backend needs."
            yield Finding(Severity.ERROR, f"{path}:1", what, _FIX)
        for module, line in _missing(tree, path, folder) if _is_importable(path, folder) else ():
            what = f"It imports {module}, which is missing."
            yield Finding(Severity.ERROR, f"{path}:{line}", what, "Copy the model's other Python files too.")


def _has_class(tree: ast.Module) -> bool:
    """Whether a class of that name is defined, imported or assigned; a star import may bring it."""
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
    """Yield imports that always run: none within a try, a condition or a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not isinstance(child, ast.Try | ast.If | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield from _certain(child)


def _submodules(node: ast.ImportFrom, package: Path) -> list[str]:
    """The names of ``from . import ...`` that must be modules, because no ``__init__.py`` can define them."""
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
