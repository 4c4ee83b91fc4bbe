"""The application with its store: opened and closed with it, no harm to requests that need none, and metrics."""

from __future__ import annotations

import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.settings import ConfigError
from tests.app.harness import Gateway, gateway
from tests.app.scripted import write_tokenizer
from tests.store.places import SqlitePlace


async def scraped(running: Gateway) -> dict[tuple[str, ...], float]:
    """The samples of the store, by name and values of labels; without bounds of buckets."""
    text = (await running.client.get("/metrics")).text
    return {
        (sample.name.removeprefix("gateway_store_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("gateway_store_") and "le" not in sample.labels
    }


async def test_calls_size_and_sweeps_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serving.store.sqlite_store.LOCK_S", 0.01)
    state = {"path": tmp_path / "state.sqlite", "max_bytes": 2**20}
    async with gateway(write_tokenizer(tmp_path), state=state) as running:
        large = {"items": [{"role": "user", "content": "x" * 400_000}]}
        for _ in range(4):
            made = (await running.client.post("/v1/conversations", json=large)).json()["id"]
        assert (await running.client.get(f"/v1/conversations/{made}")).status_code == 200
        with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await running.client.post("/v1/conversations", json={})).status_code == 503
        found = await scraped(running)
        assert found["operations_total", "put", "ok"] == 4
        assert found["operations_total", "put", "unavailable"] == 1
        assert found["operations_total", "get", "ok"] == found["operation_seconds_count", "get"] == 1
        assert found["operation_seconds_sum", "put"] > 0
        assert found["removed_documents_total",] == 2
        assert found["bytes",] == SqlitePlace(tmp_path / "state.sqlite").kept()[0]


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
