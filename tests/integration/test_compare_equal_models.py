"""``gateway compare`` between two ways to one model on the real Triton: it reports no difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway_ops.cli.root import app
from tests.stack import GatewayProcess


@pytest.fixture(scope="module")
def gateway(triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("equal-models")
    common = {"tokenizer": str(tiny_model_dir), "max_seq_len": 2048}
    models = [
        {"name": name, "triton": {"url": triton.grpc_url, "model": "ensemble"}, "path": path, **common}
        for name, path in (("by-ids", "tokens"), ("by-text", "ensemble"))
    ]
    with GatewayProcess(folder / "log", {"models": models}) as running:
        yield running


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.long)])
def test_equal_models_are_equal_in_every_greedy_request(gateway: GatewayProcess, tmp_path: Path, count: int) -> None:
    report = tmp_path / "report.json"
    done = CliRunner().invoke(
        app, ["compare", "by-ids", "by-text", "--url", gateway.url, "--sample", str(count), "--output", str(report)]
    )
    found = json.loads(report.read_text())
    assert [row for row in found["rows"] if row["outcome"] != "equal"] == []
    assert found["requests"]["equal"] == found["requests"]["sent"] == count
    assert done.exit_code == 0
    assert {row["name"] for row in found["rows"]} >= {"short, streamed", "stop strings", "completion", "JSON mode"}
    for side in ("a", "b"):
        delays = found["delays"][side]
        assert 0 < delays["time_to_first_token_ms"]["p50"] <= delays["time_to_first_token_ms"]["p99"]
        assert delays["tokens_per_s"]["p99"] <= delays["tokens_per_s"]["p50"]
    assert f"{count} equal" in done.stdout
