"""Packages of npm: made once and whole; where npm reaches nothing, tests are skipped, and else they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.npm import UnavailableError, installed


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``package.json``; commands are those of ``bin`` beside it, and the cache is empty."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "package.json"
    file.write_text('{"private": true}', encoding="utf-8")
    _command(tmp_path, "node", "exit 0")
    return file


def _command(folder: Path, name: str, script: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("line", [
    "npm error code ENOTFOUND", "npm ERR! code EAI_AGAIN", "npm ERR! code ECONNREFUSED", "npm error code E403",
    "npm error code E503", "npm error code ERR_SOCKET_TIMEOUT",
])  # fmt: skip
def test_a_network_that_is_not_there(packages: Path, line: str) -> None:
    _command(packages.parent, "npm", f"printf 'npm warn old\\n{line}\\n' >&2; exit 1")
    with pytest.raises(UnavailableError, match=line.rsplit(maxsplit=1)[-1]):
        installed(packages)


@pytest.mark.parametrize("line", ["npm error code ETARGET", "npm error code E404", "npm error said code ENOTFOUND"])
def test_another_failure(packages: Path, line: str) -> None:
    _command(packages.parent, "npm", f"echo '{line}' >&2; exit 1")
    with pytest.raises(RuntimeError, match=line.rsplit(maxsplit=1)[-1]):
        installed(packages)


def test_it_is_made_once(packages: Path) -> None:
    _command(packages.parent, "npm", "mkdir node_modules && cp package.json node_modules/made")
    made = installed(packages)
    assert (made / "made").read_bytes() == packages.read_bytes()
    _command(packages.parent, "npm", "exit 1")
    assert installed(packages) == made
