"""The archives of a release, built from the sources alone, and an environment with the wheel and no checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
# What setuptools reads: no tests, no caches, no leftovers of other builds.
_SOURCES = (
    "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
    "gateway.example.yaml", "gateway.minimal.yaml",
    "gateway", "gateway_ops", "chat_templates", "triton_repo", "examples", "docs",
    "requirements", "benchmarks", "deploy", "docker", "docker-compose.yml", ".dockerignore", ".env.example",
)  # fmt: skip


class Archives(NamedTuple):
    """The two files of a release."""

    sdist: Path
    wheel: Path


class Installed(NamedTuple):
    """An environment that has the wheel, and its dependencies from the environment of the tests."""

    folder: Path
    site: Path  # its own packages


def build_archives(source: Path, built: Path) -> Archives:
    """Build the source archive, and from it the wheel as pip would build it; nothing is fetched, or left in the tree.

    Args:
        source: an empty folder for a copy of the sources.
        built: where the archives come to lie.
    """
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "would be ignored" not in done.stdout  # setuptools, of data that it takes for packages
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    return Archives(sdist, wheel)


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Those of this tree."""
    return build_archives(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def installed(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a fresh environment; the checkout, which the tests' own environment links to, is out of sight."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(archives.wheel)], check=True, timeout=120)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    # A plain path: the files of links in there, one of which leads to the checkout, are not read.
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))
    return Installed(folder, site)
