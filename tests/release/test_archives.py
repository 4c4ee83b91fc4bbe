"""The wheel and the source archive: what they bring, compared with what is kept under version control."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.release.conftest import ROOT, Archives

DATA = {
    "gateway/chat_templates": "chat_templates",
    "gateway_ops/examples": "examples",
    "gateway_ops/triton_repo": "triton_repo",
}

_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def tracked(folder: str) -> dict[str, bytes]:
    """The files of a folder of the repository that are kept, by their paths in it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"no Git here to ask for what is kept: {listed.stderr.strip()}")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return {str(path.relative_to(ROOT / folder)): path.read_bytes() for path in paths if path.is_file()}


def test_the_wheel_has_every_file_of_the_packages(archives: Archives) -> None:
    with zipfile.ZipFile(archives.wheel) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
    meant = {
        f"{package}/{name}": content
        for package in ("gateway", "gateway_ops")
        for name, content in tracked(package).items()
        if not name.endswith("README.md")
    }
    for inside, folder in DATA.items():
        # Templates are the only files there that are used by their names.
        kept = {name: content for name, content in tracked(folder).items() if not name.endswith("README.md")}
        meant |= {f"{inside}/{name}": content for name, content in kept.items()}
    without_pages = {name: content for name, content in found.items() if not name.endswith("README.md")}
    assert without_pages.keys() == meant.keys()
    assert [name for name, content in without_pages.items() if content != meant[name]] == []
    # Triton wants the version folder of a model that has no file, and an archive keeps no empty one.
    assert "gateway_ops/triton_repo/ensemble/1/.gitkeep" in found


def test_the_source_archive_has_what_its_pages_speak_of(archives: Archives) -> None:
    with tarfile.open(archives.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    folders = {str(folder) for name in names for folder in Path(name).parents}
    for page in (name for name in names if re.fullmatch(r"(docs/.+|[A-Z]+)\.md", name)):
        for link in _LINK.findall((ROOT / page).read_text()):
            target = os.path.normpath(Path(page).parent / link)
            assert target in names | folders, f"{page} leads to {link}"
    for folder in ("deploy", "docker"):
        assert {f"{folder}/{name}" for name in tracked(folder)} <= names
    for needed in ("docker-compose.yml", ".dockerignore", ".env.example", "requirements/core.txt"):
        assert needed in names
    assert [name for name in names if name.startswith(("tests/", "tools/")) or name.endswith(".pyc")] == []
    assert {Path(name).suffix for name in names if Path(name).parts[:1] == ("benchmarks",)} <= {"", ".md"}


def test_the_archives_say_what_the_gateway_runs_on(archives: Archives) -> None:
    with zipfile.ZipFile(archives.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = wheel.read(name).decode()
    assert archives.wheel.name.endswith("-py3-none-any.whl")  # nothing is compiled: the same file on arm64
    assert "\nRequires-Python: >=3.10\n" in metadata
    for minor in range(10, 15):
        assert f"\nClassifier: Programming Language :: Python :: 3.{minor}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
