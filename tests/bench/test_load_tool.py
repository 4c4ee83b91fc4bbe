"""``gateway bench`` as its users run it: against the stack, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.serving.comparison.durations import Durations
from gateway_ops.bench.exchange import TimedExchange
from gateway_ops.bench.load import LoadSender, open_session
from gateway_ops.bench.plan import Lengths, LoadPlan, PlanError
from gateway_ops.bench.tally import LoadTally
from gateway_ops.cli.root import app
from tests.ports import free_port
from tests.raw_server import raw_server, read_request
from tests.stack import GatewayProcess
from tests.warm_gateways import gateway

KEY = "sk-of-the-test"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return gateway("bench", *arguments)


def test_streams_and_rates_against_the_stack(triton: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    settings = {"GATEWAY_MODEL": "tiny", "GATEWAY_TRITON_URL": triton.grpc_url, "GATEWAY_MAX_SEQ_LEN": "2048"}
    settings |= {"GATEWAY_TOKENIZER": str(tiny_model_dir), "GATEWAY_API_KEYS": KEY}
    with GatewayProcess(tmp_path / "log", **settings) as running:
        output = tmp_path / "results" / "streams.json"
        common = (f"{running.url}/v1", "--api-key", KEY, "--prompt-tokens", "5-20", "--ignore-eos", "--json")
        done = bench(*common, "--streams", "3", "--requests", "9", "--warm-up", "0", "--max-tokens", "7",
                     "--output", str(output))  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found == json.loads(output.read_text())
        assert found["requests"] == {"sent": 9, "completed": 9, "failed": {}, "not_sent": 0}
        assert found["tokens"]["completion"] == 63
        assert found["tokens"]["prompt"] > 9 * 5
        first, whole = found["time_to_first_token_ms"], found["end_to_end_ms"]
        assert 0 < first["p50"] <= first["p99"] <= first["max"] <= whole["max"]
        assert found["completion_tokens_per_s"] > 0
        assert running.metric("gateway_requests_total", 'endpoint="/v1/chat/completions"') == 9

        done = bench(*common, "--rate", "40", "--duration", "1", "--warm-up", "0.2", "--max-tokens", "2")
        found = json.loads(done.stdout)
        assert 15 < found["requests"]["sent"] == found["requests"]["completed"] < 80
        assert found["model"] == "tiny"

        rejected = bench(running.url, "--model", "tiny", "--api-key", "wrong", "--requests", "2", "--warm-up", "0")
        assert rejected.returncode == 1
        assert "2 x 401 invalid_api_key" in rejected.stdout
        assert "Traceback" not in rejected.stderr


def loaded(data: bytes, plan: LoadPlan, *, hangs: bool = False) -> LoadTally:
    """The result of a load on a server that gives each request the same bytes."""

    async def send(url: str) -> LoadTally:
        async with open_session(None) as session:
            load = LoadSender(plan, session, f"{url}/v1/chat/completions", "m")
            await load.run()
            return load.tally

    with raw_server(partial(give, data, hangs=hangs)) as url:
        return asyncio.run(send(url))


def give(data: bytes, peer: socket.socket, *, hangs: bool = False) -> None:
    read_request(peer)
    peer.sendall(data)
    while hangs and peer.recv(65536):
        pass


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (TEXT, "the stream ended without [DONE]"),
        (TEXT + b'data: {"error":{"message":"m","code":"engine_failed"}}\n\n', "error event: engine_failed"),
        (b"data: {\n\n", "an event that is not JSON"),
        (b"", "timeout"),
        (b"data: " + b"x" * (3 * 2**20), "an event of more than 1 MiB"),
    ],
    ids=["cut off", "error event", "no JSON", "silence", "endless line"],
)
def test_failures_are_counted_by_kind(data: bytes, kind: str) -> None:
    plan = LoadPlan(streams=1, requests=2, warm_up_s=0, timeout_s=0.5 if kind == "timeout" else 30)
    tally = loaded(OK + data, plan, hangs=kind == "timeout")
    assert (tally.failed, tally.completed) == ({kind: 2}, 0)


def row(text: str, title: str) -> list[str]:
    """The cells of a row of the table."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(title)]
    return [cell.strip() for cell in line.replace("|", "│").split("│")[1:]]


def test_what_was_not_measured_is_a_dash() -> None:
    arguments = ("--model", "m", "--streams", "1", "--requests", "2", "--warm-up", "0")
    with raw_server(partial(give, OK + TEXT)) as url:
        failed = bench(url, *arguments)
    assert failed.returncode == 1, failed.stderr
    assert set(row(failed.stdout, "whole answer")) == {"-"}
    assert "0 of 2 requests, -/s" in failed.stdout
    assert "- tokens in prompts" in failed.stdout
    with raw_server(partial(give, OK + TEXT + b"data: [DONE]\n\n")) as url:
        told, found = bench(url, *arguments), json.loads(bench(url, *arguments, "--json").stdout)
    assert told.returncode == 0, told.stderr
    assert set(row(told.stdout, "between tokens")) == {"-"}
    assert "-" not in row(told.stdout, "whole answer")
    assert set(found["inter_token_ms"].values()) == {None}
    assert found["end_to_end_ms"]["p50"] > 0
    assert found["tokens"] == {"prompt": None, "completion": 2}


def test_a_server_that_is_too_slow_for_the_rate_does_not_fill_memory() -> None:
    plan = LoadPlan(streams=None, rate=200, duration_s=0.5, warm_up_s=0, in_flight=5, timeout_s=1)
    tally = loaded(OK, plan, hangs=True)
    assert tally.sent == 5
    assert tally.dropped > 20


@pytest.mark.parametrize(
    "arguments",
    [("--streams", "2", "--rate", "3"), ("--prompt-tokens", "9-2"), ("--max-tokens", "x"), ("--prompt-tokens", "0")],
)
def test_a_load_that_makes_no_sense_is_refused(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["bench", f"http://127.0.0.1:{free_port()}", *arguments])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert isinstance(done.exception, SystemExit)


def test_the_same_seed_gives_the_same_load() -> None:
    def some(seed: int) -> list[Any]:
        plan = LoadPlan(prompt=Lengths(2, 9), answer=Lengths(1, 50), seed=seed)
        return [body for body, _ in zip(plan.bodies("m"), range(20), strict=False)]

    assert some(1) == some(1) != some(2)
    with pytest.raises(PlanError):
        LoadPlan(requests=None, duration_s=None)


def test_percentiles_are_right_within_a_percent() -> None:
    durations = Durations()
    for index in range(1, 10_001):
        durations.add(index / 10_000)
    for share in (50, 90, 99):
        assert durations.percentile(share) == pytest.approx(share / 100, rel=0.011)
    assert durations.as_json()["max"] == 1000
    assert Durations().percentile(99) is None
    assert set(Durations().as_json().values()) == {None}


def test_an_answer_of_no_tokens_has_none() -> None:
    assert TimedExchange(events=[1.0], usage={"completion_tokens": 0}).completion_tokens == 0
    assert TimedExchange(events=[1.0]).completion_tokens == 1
