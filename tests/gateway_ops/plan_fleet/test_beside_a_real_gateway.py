"""The simulation beside the real gateway with ``gateway bench``, over an engine that keeps a pace."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gateway_ops.plan_fleet.curves import Curve
from gateway_ops.plan_fleet.engine_costs import EngineCosts
from gateway_ops.plan_fleet.loads import LoadRequest
from gateway_ops.plan_fleet.simulation import EngineCell, simulate
from tests.app.scripted import ByteIds, write_tokenizer
from tests.doubles.paced.server import LETTERS, PacedServer
from tests.stack import GATEWAY, GatewayProcess

SLOTS, STEP_S, ANSWER, STREAMS = 4, 0.02, 26, 12


@pytest.mark.long
def test_streams_over_a_paced_engine_take_what_the_simulation_says(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    letters = ByteIds(tokenizer).of(LETTERS)
    with PacedServer(letters, slots=SLOTS, token_s=STEP_S, log=tmp_path / "triton.log") as triton:
        settings = {
            "GATEWAY_MODEL": "paced", "GATEWAY_TRITON_URL": triton.url, "GATEWAY_TOKENIZER": str(tokenizer),
            "GATEWAY_MAX_SEQ_LEN": "4096",
        }  # fmt: skip
        with GatewayProcess(tmp_path / "gateway.log", **settings) as gateway:
            load = ["--streams", str(STREAMS), "--requests", "72", "--warm-up", "2", "--max-tokens", str(ANSWER)]
            command = [str(GATEWAY), "bench", gateway.url, *load, "--prompt-tokens", "20", "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    costs = EngineCosts(SLOTS, Curve(((1.0, STEP_S),)), Curve(((1.0, 0.0),)))
    requests = iter(lambda: LoadRequest(0.0, 100, ANSWER), None)
    seen = simulate(EngineCell(costs, 1), requests, skip=48, count=72, streams=STREAMS)
    # A busy machine makes the real one slower, never faster.
    whole, first = measured["end_to_end_ms"]["mean"] / 1000, measured["time_to_first_token_ms"]["mean"] / 1000
    assert seen.whole.mean * 0.93 <= whole <= seen.whole.mean * 1.35
    assert seen.first.mean * 0.9 <= first <= seen.first.mean * 1.4
    # Twelve streams over four slots: two thirds of the time is spent waiting for a slot.
    assert seen.waited.mean / seen.whole.mean == pytest.approx(2 / 3, rel=0.02)
