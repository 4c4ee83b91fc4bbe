"""The application with its store: opened with it, closed with it, and no harm to requests that need none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.settings import ConfigError
from tests.app.harness import gateway


async def test_the_file_is_made_at_the_start_and_closed_at_the_end(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.sqlite"
    async with gateway(folder, state={"path": path}) as running:
        assert path.exists()
        assert path.with_name("state.sqlite-wal").exists(), "it is open"
        assert (await running.chat()).status_code == 200
    assert not path.with_name("state.sqlite-wal").exists(), "the last that closes it puts all into the file"


async def test_a_given_file_that_cannot_be_used_ends_the_start(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"state\.path"):
        async with gateway(folder, state={"path": tmp_path / "file" / "state.sqlite"}):
            pass


async def test_a_locked_store_harms_no_request_that_does_without(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    async with gateway(folder, state={"path": path}) as running:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            body = {"model": "scripted", "input": "Hi", "store": False}
            assert (await running.chat()).status_code == 200
            answer = await running.client.post("/v1/responses", json=body)
            assert answer.status_code == 200, answer.text
