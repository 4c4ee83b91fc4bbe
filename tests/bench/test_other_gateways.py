"""What the benchmark beside other gateways makes of its runs, and the pace of its engines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.harness.load import Load
from benchmarks.harness.peers import comparison
from benchmarks.harness.peers.pace import Pace, token_id
from benchmarks.harness.peers.peer import Peer
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.subjects import Subject, transports

OURS = Subject("gateway", "tokens", transports()[0]).name


def row(cpu_us: float, **more: Any) -> dict[str, Any]:
    spread = {"cpu_us": cpu_us, "cpu_us_least": cpu_us - 1, "cpu_us_most": cpu_us + 1}
    return {**spread, "tokens_s": 3100.0, "first_p50": 30_400.0, "first_p99": 45_600.0, **more}


def test_a_ratio_is_taken_where_both_carried_answers_of_one_length() -> None:
    loads = {
        "64x20ms": {OURS: row(30.0), "Dynamo": row(60.0), "LiteLLM": row(900.0, tokens=30)},
        "burst": {OURS: row(10.0), "Dynamo": {"failed": "burst: refused"}, "LiteLLM": row(600.0, tokens=60)},
    }
    assert comparison.ratios(loads, "Dynamo") == {"64x20ms": 0.5}
    assert comparison.ratios(loads, "LiteLLM") == {}


def test_a_failed_run_leaves_a_gateway_out_of_the_rest_of_that_load(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def rejects(child: object, load: Load, body: object) -> None:
        asked.append(load.tokens)
        raise BenchmarkError("64x20ms: not every answer was whole: bad=64\nmore")

    monkeypatch.setattr(comparison, "run", rejects)
    monkeypatch.setattr(comparison, "body", lambda _: None)
    slow = Peer("LiteLLM", "1.0", None, lambda _: None, "", "", slow=True)  # type: ignore[arg-type]
    rows = comparison._interleaved([slow], Load("64x20ms", 64, 20_000, 150), 3, lambda _: None)
    assert rows == {"LiteLLM": {"failed": "64x20ms: not every answer was whole: bad=64"}}
    assert asked == [30]  # a slow one gets a fifth of the tokens


async def test_an_engine_waits_before_each_token_as_the_synthetic_triton_does() -> None:
    pace = Pace()
    pace.delay_s = 0.03
    clock = asyncio.get_running_loop().time
    begun = clock()
    times = [clock() - begun async for _ in pace.count(3)]
    assert all(time >= 0.03 * (index + 1) - 0.002 for index, time in enumerate(times))
    pace.delay_s = 0.0
    assert [index async for index in pace.count(3)] == [0, 1, 2]
    assert [token_id(index) for index in (0, 63, 64)] == [1000, 1063, 1000]
