"""``gateway bench`` as its users run it: against the stack, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
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
from tests.stack import GatewayProcess
from tests.warm_gateways import WarmGateways

KEY = "sk-of-the-test"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
    return WarmGateways.of_this_process().run(["bench", *arguments], environment)


def test_streams_and_rates_against_the_stack(triton: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    with GatewayProcess(
        tmp_path / "log",
        GATEWAY_MODEL="tiny",
        GATEWAY_TRITON_URL=triton.grpc_url,
        GATEWAY_TOKENIZER=str(tiny_model_dir),
        GATEWAY_MAX_SEQ_LEN="2048",
        GATEWAY_API_KEYS=KEY,
    ) as gateway:
        output = tmp_path / "results" / "streams.json"
        common = (f"{gateway.url}/v1", "--api-key", KEY, "--prompt-tokens", "5-20", "--ignore-eos", "--json")
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
        assert gateway.metric("gateway_requests_total", 'endpoint="/v1/chat/completions"') == 9

        done = bench(*common, "--rate", "40", "--duration", "1", "--warm-up", "0.2", "--max-tokens", "2")
        found = json.loads(done.stdout)
        assert 15 < found["requests"]["sent"] == found["requests"]["completed"] < 80
        assert found["model"] == "tiny"

        rejected = bench(gateway.url, "--model", "tiny", "--api-key", "wrong", "--requests", "2", "--warm-up", "0")
        assert rejected.returncode == 1
        assert "2 x 401 invalid_api_key" in rejected.stdout
        assert "Traceback" not in rejected.stderr


async def loaded(url: str, plan: LoadPlan) -> LoadTally:
    async with open_session(None) as session:
        load = LoadSender(plan, session, f"{url}/v1/chat/completions", "m")
        await load.run()
        return load.tally


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def cut_off(writer: asyncio.StreamWriter) -> None:
    writer.write(OK + TEXT)


async def error_event(writer: asyncio.StreamWriter) -> None:
    writer.write(OK + TEXT + b'data: {"error":{"message":"m","code":"engine_failed"}}\n\n')


async def no_json(writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"data: {\n\n")


async def silence(writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    await asyncio.Event().wait()


async def endless_line(writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"data: " + b"x" * (3 * 2**20))


@pytest.fixture
async def misbehaving() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    servers = []
    handling: set[asyncio.Task[None]] = set()

    async def serve(answer: Answer) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            handling.add(task)
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await reader.readuntil(b"\r\n\r\n")
                await answer(writer)
            with contextlib.suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield serve
    for server in servers:
        server.close()
    for task in handling:
        task.cancel()
    await asyncio.gather(*handling)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (cut_off, "the stream ended without [DONE]"),
        (error_event, "error event: engine_failed"),
        (no_json, "an event that is not JSON"),
        (silence, "timeout"),
        (endless_line, "an event of more than 1 MiB"),
    ],
)
async def test_failures_are_counted_by_kind(misbehaving: Any, answer: Answer, kind: str) -> None:
    tally = await loaded(await misbehaving(answer), LoadPlan(streams=1, requests=2, warm_up_s=0, timeout_s=0.5))
    assert tally.failed == {kind: 2}
    assert tally.completed == 0


async def one_token(writer: asyncio.StreamWriter) -> None:
    writer.write(OK + TEXT + b"data: [DONE]\n\n")


def row(text: str, title: str) -> list[str]:
    """The cells of a row of the table."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(title)]
    return [cell.strip() for cell in line.replace("|", "│").split("│")[1:]]


async def test_what_was_not_measured_is_a_dash(misbehaving: Any) -> None:
    arguments = ("--model", "m", "--streams", "1", "--requests", "2", "--warm-up", "0")
    failed = await asyncio.to_thread(bench, await misbehaving(cut_off), *arguments)
    assert failed.returncode == 1, failed.stderr
    assert set(row(failed.stdout, "whole answer")) == {"-"}
    assert "0 of 2 requests, -/s" in failed.stdout
    assert "- tokens in prompts" in failed.stdout
    told = await asyncio.to_thread(bench, await misbehaving(one_token), *arguments)
    assert told.returncode == 0, told.stderr
    assert set(row(told.stdout, "between tokens")) == {"-"}
    assert "-" not in row(told.stdout, "whole answer")
    summary = await asyncio.to_thread(bench, await misbehaving(one_token), *arguments, "--json")
    found = json.loads(summary.stdout)
    assert set(found["inter_token_ms"].values()) == {None}
    assert found["end_to_end_ms"]["p50"] > 0
    assert found["tokens"] == {"prompt": None, "completion": 2}


async def test_a_server_that_is_too_slow_for_the_rate_does_not_fill_memory(misbehaving: Any) -> None:
    plan = LoadPlan(streams=None, rate=200, duration_s=0.5, warm_up_s=0, in_flight=5, timeout_s=1)
    tally = await loaded(await misbehaving(silence), plan)
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
