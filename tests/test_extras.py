"""The command that installs what an extra needs."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gateway.settings.extras import pip_install
from tests.tools.test_dependencies import PROJECT, ROOT

TEXTS = (".md", ".py", ".toml", ".yaml", ".yml", ".sh", ".txt", ".jinja", ".html", ".js")
# The name where pip would look it up on an index. `--no-index` does not.
BY_NAME = re.compile(
    r"triton[-_.]openai[-_.]gateway\[|pip install (?!.*--no-index).*triton-openai-gateway", re.IGNORECASE
)
WRONG = (
    "pip install 'triton-openai-gateway[otel]'",
    "triton_openai_gateway[bench] @ git+URL",
    "pip install -U triton-openai-gateway",
)


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"].keys() - {"dev"}))
def test_it_names_the_requirements_of_pyproject(extra: str) -> None:
    pip, install, *found = shlex.split(pip_install(extra))
    assert (pip, install) == ("pip", "install")
    assert set(map(Requirement, found)) == set(map(Requirement, PROJECT["optional-dependencies"][extra]))


def test_a_checkout_that_is_not_installed_names_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    assert pip_install("otel") == "pip install '.[otel]'"


def texts() -> list[Path]:
    folders = ("gateway", "gateway_ops", "tools", "docs", "deploy", "docker", "examples", "benchmarks", "triton_repo")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    found += [ROOT / "Makefile", *ROOT.glob("*.md"), *ROOT.glob("*.y*ml")]
    return [path for path in found if path.is_file() and (path.suffix in TEXTS or path.name.startswith("Dockerfile"))]


def test_no_text_has_the_package_installed_by_its_name() -> None:
    """It is on no index: an owner of that name there would own those who type the command."""
    read = {path: path.read_text(encoding="utf-8") for path in texts()}
    assert len(read) > 500
    assert [str(path) for path, text in read.items() if BY_NAME.search(text)] == []
    assert all(map(BY_NAME.search, WRONG))
