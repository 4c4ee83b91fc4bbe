"""Metrics of the store, as a scrape of a running gateway shows them."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

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
