"""What the packages import is what ``pip install`` brings, and nothing else is asked for."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Rooms whose imports an extra brings.
EXTRAS = {
    "gateway/access": ("jwt", "redis"),
    "gateway/encryption.py": ("encryption",),
    "gateway/store": ("redis",),
    "gateway/telemetry": ("otel",),
    "gateway/tokens": ("transformers",),
    "gateway_ops/bench": ("bench",),
    "gateway_ops/compare": ("bench",),
    "gateway_ops/local_stack": ("embedded",),
}
# Declared for a reason that no import of the packages shows.
ELSEWHERE = {
    "httptools": "the protocol of uvicorn that gateway/web/http_protocol.py is made of",
    "nvidia-pytriton": "its wheel holds tritonserver, which gateway_ops/local_stack starts",
    "llguidance": "the engines in triton_repo/",
}
PARTS = {"pydantic-core": "pydantic"}  # a package that another one is made of, and its release too
INTERNALS = ("uvicorn", "prometheus-client")  # of these parts are used that they do not document


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    listed = [*PROJECT["dependencies"], *(one for extra in extras for one in PROJECT["optional-dependencies"][extra])]
    return {normal(re.split(r"[<>=!~;\[ ]", one)[0]) for one in listed}


providers_of = functools.cache(packages_distributions)


@functools.cache
def imported(folder: str) -> list[tuple[Path, set[str]]]:
    """A file below the root and the distributions that may provide one of its imports, for each import."""
    return list(_imported(folder))


def _imported(folder: str) -> Iterator[tuple[Path, set[str]]]:
    providers = providers_of()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            for root in {name.partition(".")[0] for name in names}:
                if root not in sys.stdlib_module_names and root not in ("gateway", "gateway_ops"):
                    found = {normal(one) for one in providers.get(root, [root])}
                    yield path.relative_to(ROOT), {PARTS.get(one, one) for one in found}


@pytest.mark.parametrize("package", ["gateway", "gateway_ops"])
def test_every_import_is_declared(package: str) -> None:
    missing = set()
    for path, names in imported(package):
        extras = EXTRAS.get("/".join(path.parts[:2]), ())
        if not declared(*extras) & names:
            missing.add((str(path), *names))
    assert missing == set()


def test_everything_declared_is_imported() -> None:
    used = {name for folder in ("gateway", "gateway_ops") for _, names in imported(folder) for name in names}
    assert declared("bench", "embedded", "transformers") - used == ELSEWHERE.keys()


@pytest.mark.parametrize("name", INTERNALS)
def test_the_next_release_is_kept_out_where_internals_are_used(name: str) -> None:
    (requirement,) = [one for one in PROJECT["dependencies"] if normal(one).startswith(name)]
    assert "<" in requirement
    assert version(name)  # and the pinned one is in


@pytest.mark.long
def test_the_newest_releases_work(tmp_path: Path) -> None:
    """Those whose internals are used, in an environment of their own above this one."""
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *INTERNALS]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"the newest releases cannot be fetched: {installed.stderr.strip()[-200:]}")
    # Everything else comes from the environment of this process, behind what was just installed.
    (found,) = environment.glob("lib/python*/site-packages")
    (found / "above.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    tests = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not long"]
    done = subprocess.run(
        [*tests, "tests/web", "tests/telemetry"], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
