"""Several scripted engines behind one model: who gets a request, and what a client notices when one of them fails."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import create_app
from gateway.generation import EngineChunk, EngineError, EngineFeatures, ErrorKind
from gateway.generation.engine import Capability
from gateway.generation.route import RoutingHints
from gateway.serving.fleet import fleet as fleet_module
from gateway.serving.fleet.fleet import Fleet
from gateway.serving.fleet.shared_counts import SharedCounts
from tests.app.documented import DocumentedClient
from tests.app.harness import USER, says
from tests.app.scripted import MODEL, TOKENS, Script, ScriptedBackend, ScriptedEngine, settings_for
from tests.telemetry.collector import collecting
from tests.waiting import until

AWAY = EngineError(ErrorKind.UNAVAILABLE, "The model is currently unavailable; try again later.", "10.0.0.1 is gone")


class Stack:
    """A gateway over endpoints whose engines are scripted."""

    def __init__(self, client: DocumentedClient, engines: dict[str, ScriptedEngine], fleet: Fleet) -> None:
        self.client, self.engines, self.fleet = client, engines, fleet
        self.backends: dict[str, ScriptedBackend] = {}

    async def chat(self, **body: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json={"model": MODEL, "messages": USER, **body})

    def asked(self) -> dict[str, int]:
        """Requests that each endpoint had."""
        return {address: len(engine.requests) for address, engine in self.engines.items()}

    async def states(self) -> list[str]:
        described = (await self.client.get(f"/v1/models/{MODEL}")).json()
        return [each["state"] for each in described["gateway"]["endpoints"]]


@contextlib.asynccontextmanager
async def stack(
    folder: Path,
    scripts: dict[str, Script],
    features: dict[str, EngineFeatures] | None = None,
    telemetry: dict[str, Any] | None = None,
    **balance: Any,
) -> AsyncIterator[Stack]:
    engines = {
        address: ScriptedEngine(script, (features or {}).get(address, TOKENS)) for address, script in scripts.items()
    }
    backends: dict[str, ScriptedBackend] = {}
    fleets: list[Fleet] = []

    def at(address: str) -> ScriptedBackend:
        backends[address] = ScriptedBackend(engines.get(address))
        return backends[address]

    def make(model: Any) -> Fleet:
        fleets.append(Fleet(model.name, model.triton, at, SharedCounts()))
        return fleets[-1]

    triton = {"endpoints": list(scripts), "balance": {"slow_start_s": 0, **balance}}
    app = create_app(settings_for(folder, triton=triton, telemetry=telemetry or {}), backend_factory=make)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with DocumentedClient(False, base_url="http://localhost", transport=transport, timeout=20) as client:
            running = Stack(client, engines, fleets[0])
            running.backends = backends
            yield running
    assert all(engine.running == 0 for engine in engines.values())
    assert all(backend.closed for backend in backends.values())


def fails(error: EngineError = AWAY, after: int = 0) -> Script:
    return lambda _: [*([EngineChunk(ids=[65])] * after), error]


def holds(gate: asyncio.Event, then: Script) -> Script:
    return lambda request: [gate, *then(request)]


async def test_requests_go_where_fewest_run(folder: Path) -> None:
    gate = asyncio.Event()
    script = holds(gate, says(folder, "Hi"))
    async with stack(folder, {"a:1": script, "b:1": script, "c:1": script}) as running:
        asked = [asyncio.create_task(running.chat(max_tokens=2)) for _ in range(9)]
        await until(lambda: sum(running.asked().values()) == 9)
        assert running.asked() == {"a:1": 3, "b:1": 3, "c:1": 3}
        metrics = (await running.client.get("/metrics")).text
        for address in running.engines:
            assert f'gateway_endpoint_requests_in_flight{{endpoint="{address}",model="{MODEL}"}} 3.0' in metrics
            assert f'gateway_endpoint_ready{{endpoint="{address}",model="{MODEL}"}} 1.0' in metrics
        gate.set()
        answers = await asyncio.gather(*asked)
    assert {answer.json()["choices"][0]["message"]["content"] for answer in answers} == {"Hi"}


async def test_endpoints_that_find_no_place_to_be_counted_do_not_have_all_requests(folder: Path) -> None:
    counts = SharedCounts()
    for key in range(1, 257):
        counts.join(key)
    triton = settings_for(folder, triton={"endpoints": ["a:1", "b:1"], "balance": {"slow_start_s": 0}}).models[0].triton
    engine = ScriptedEngine(says(folder, "Hi"))
    fleet = Fleet(MODEL, triton, lambda _: ScriptedBackend(engine), counts)
    await fleet.start()
    await until(lambda: fleet.status.ready)
    for _ in range(40):
        fleet.route(RoutingHints()).began()
    assert [each.requests for each in fleet.members.values()] == [20, 20]
    await fleet.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_without_a_token_is_served_elsewhere(folder: Path, stream: bool) -> None:
    async with stack(folder, {"a:1": fails(), "b:1": says(folder, "Hello")}, policy="prefix") as running:
        for _ in range(6):
            answer = await running.chat(max_tokens=5, seed=7, stream=stream, prompt_cache_key="one")
            assert answer.status_code == 200
            assert "error" not in answer.text
        failed, served = running.engines["a:1"].requests, running.engines["b:1"].requests
        assert len(served) == 6
        by_id = {request.id: request for request in served}
        assert all(by_id[request.id].seed == request.seed for request in failed)
        assert all(request.seed == 7 for request in served)
        metrics = (await running.client.get("/metrics")).text
        assert f'gateway_retries_elsewhere_total{{model="{MODEL}"}} {len(failed)}.0' in metrics


async def test_a_trace_shows_each_endpoint_that_was_tried(folder: Path) -> None:
    with collecting() as collector:
        telemetry = {"traces": True, "endpoint": collector.url, "sample_ratio": 1, "traceparent_to_triton": True}
        scripts = {"a:1": fails(), "b:2": says(folder, "Hello")}
        async with stack(folder, scripts, telemetry=telemetry, policy="prefix") as running:
            while not running.engines["a:1"].requests:
                await running.chat(max_tokens=5)
            (failed,), served = running.engines["a:1"].requests, running.engines["b:2"].requests[-1]
            answered = await running.client.get("/metrics")
    assert f'gateway_endpoint_state{{endpoint="b:2",model="{MODEL}",state="ready"}} 1.0' in answered.text
    calls = [span for span in collector.spans if span.kind == 3][-2:]
    assert [(call.attributes["server.address"], call.attributes.get("error.type")) for call in calls] == [
        ("a", "unavailable"),
        ("b", None),
    ]
    assert [call.attributes["server.port"] for call in calls] == [1, 2]
    assert [request.traceparent for request in (failed, served)] == [f"00-{call.trace}-{call.id}-01" for call in calls]
    assert len({call.trace for call in calls}) == 1


async def test_a_request_that_an_ending_triton_cancels_is_served_elsewhere(folder: Path) -> None:
    cancels = fails(EngineError(ErrorKind.CANCELLED, "The engine cancelled the request."))
    async with stack(folder, {"a:1": cancels, "b:1": says(folder, "Hello")}) as running:
        while running.asked()["a:1"] == 0:
            assert (await running.chat(max_tokens=5)).status_code == 200


async def test_after_the_first_token_nothing_is_tried_elsewhere(folder: Path) -> None:
    async with stack(folder, {"a:1": fails(after=2), "b:1": fails(after=2)}) as running:
        answer = await running.chat(max_tokens=5, stream=True)
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        assert json.loads(events[-1])["error"]["code"] == "model_not_ready" or "error" in json.loads(events[-1])
        assert sum(running.asked().values()) == 1


@pytest.mark.parametrize("kind", [ErrorKind.INVALID_REQUEST, ErrorKind.CONTEXT_LENGTH, ErrorKind.UNSERVABLE])
async def test_a_refusal_is_the_answer(folder: Path, kind: ErrorKind) -> None:
    refusal = fails(EngineError(kind, "No."))
    async with stack(folder, {"a:1": refusal, "b:1": refusal}) as running:
        for _ in range(10):
            assert (await running.chat()).status_code == 400
        assert sum(running.asked().values()) == 10
        assert await running.states() == ["ready", "ready"]


async def test_where_all_fail_the_client_is_told_once_each_was_tried(folder: Path) -> None:
    async with stack(folder, {"a:1": fails(), "b:1": fails(), "c:1": fails()}, retries=5) as running:
        assert (await running.chat()).status_code == 503
        assert running.asked() == {"a:1": 1, "b:1": 1, "c:1": 1}


@pytest.mark.parametrize("away_s", [4.8, math.inf])
async def test_one_that_has_just_come_back_is_found_when_the_other_ends(folder: Path, away_s: float) -> None:
    """Whoever restarts them one after the other sees the first come back before the gateway does."""
    ends = asyncio.Event()
    scripts: dict[str, Script] = {"a:1": says(folder, "Hi"), "b:1": lambda _: [ends, AWAY]}
    async with stack(folder, scripts) as running:
        back, ending = running.backends["a:1"], running.backends["b:1"]
        back.leave("restarted")
        running.fleet.members["a:1"]._last_ready = time.monotonic() - away_s
        back.check = lambda: back.arrive(running.engines["a:1"])  # type: ignore[method-assign]
        asked = asyncio.create_task(running.chat())
        await until(lambda: running.asked()["b:1"] == 1)
        ending.leave("ended")
        ends.set()
        answer = await asked
        assert (answer.status_code, running.asked()) == (200, {"a:1": 1, "b:1": 1})


async def test_one_that_fails_is_out_and_comes_back(folder: Path) -> None:
    well = says(folder, "Hi")
    scripts: dict[str, Script] = {"a:1": fails(), "b:1": well}
    async with stack(folder, scripts, breaker_failures=2, breaker_open_s=0.2) as running:
        while await running.states() != ["failing", "ready"]:
            assert (await running.chat(max_tokens=1)).status_code == 200
        before = running.asked()["a:1"]
        assert before == 2
        running.engines["a:1"].script = well
        while running.asked()["a:1"] < before + 5:
            assert (await running.chat(max_tokens=1)).status_code == 200
        assert await running.states() == ["ready", "ready"]


async def test_the_last_one_is_never_out(folder: Path) -> None:
    options = {"breaker_failures": 1, "breaker_open_s": 60, "wait_s": 0.05}
    async with stack(folder, {"a:1": fails(), "b:1": fails()}, **options) as running:
        running.backends["b:1"].leave("gone")
        for _ in range(5):
            assert (await running.chat()).status_code == 503
        assert running.asked()["a:1"] == 5


async def test_retries_wait_for_their_turn_and_none_fails(folder: Path) -> None:
    """An endpoint dies under many requests without a token: they move in a bounded number at a time."""
    dies, moves = asyncio.Event(), asyncio.Event()
    script_a: Script = lambda _: [dies, AWAY]  # noqa: E731
    hello = says(folder, "Hi")
    async with stack(folder, {"a:1": script_a, "b:1": holds(moves, hello)}) as running:
        asked = [asyncio.create_task(running.chat(max_tokens=2)) for _ in range(40)]
        await until(lambda: sum(running.asked().values()) == 40)
        dies.set()
        most = 0
        for _ in range(2000):
            await asyncio.sleep(0)
            most = max(most, len(running.engines["b:1"].requests))
        assert 20 < most <= 20 + 8
        moves.set()
        answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert len(running.engines["b:1"].requests) == 40


async def test_a_model_that_was_replaced_leaves_nothing_behind(folder: Path) -> None:
    """A former one that had found an endpoint silent, and one that still served when it was closed."""
    counts = SharedCounts()
    triton = settings_for(folder, triton={"endpoints": ["a:1"]}).models[0].triton
    engine = ScriptedEngine(says(folder, "Hi"))
    fleets = [Fleet(MODEL, triton, lambda _: ScriptedBackend(engine), counts) for _ in range(300)]
    await fleets[0].start()
    key = fleets[0].members["a:1"].key
    for former, fleet in itertools.pairwise(fleets):
        await fleet.start()
        counts.out(key, 60)
        await former.close()
    await fleets[-1].close()
    assert not counts.counts_of([key])[key].out
    counts.join(7)
    counts.add(7, 1)
    assert counts.counts_of([7])[7].requests == 1


async def test_those_that_wait_to_be_retried_are_told_when_there_is_nothing_left_to_try(folder: Path) -> None:
    dies, too = asyncio.Event(), asyncio.Event()
    scripts: dict[str, Script] = {"a:1": lambda _: [dies, AWAY], "b:1": lambda _: [too, AWAY]}
    async with stack(folder, scripts, wait_s=0.1) as running:
        asked = [asyncio.create_task(running.chat(max_tokens=2)) for _ in range(40)]
        await until(lambda: sum(running.asked().values()) == 40)
        dies.set()
        await until(lambda: running.asked()["b:1"] > 20)
        for backend in running.backends.values():
            backend.leave("gone")
        too.set()
        done, late = await asyncio.wait(asked, timeout=10)
        assert not late
    assert {task.result().status_code for task in done} == {503}


async def test_a_client_that_leaves_while_its_request_waits_to_be_retried(folder: Path) -> None:
    dies, moves = asyncio.Event(), asyncio.Event()
    script_a: Script = lambda _: [dies, AWAY]  # noqa: E731
    async with stack(folder, {"a:1": script_a, "b:1": holds(moves, says(folder, "Hi"))}) as running:
        asked = [asyncio.create_task(running.chat(max_tokens=2)) for _ in range(40)]
        await until(lambda: sum(running.asked().values()) == 40)
        dies.set()
        for _ in range(2000):
            await asyncio.sleep(0)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        moves.set()
        assert (await running.chat(max_tokens=2)).status_code == 200
        assert [each.requests for each in running.fleet.endpoints] == [0, 0]


async def test_what_endpoints_can_do_is_what_all_can_do(folder: Path) -> None:
    cannot = {"logprobs": Capability("impossible", "It has none.")}
    poor = dataclasses.replace(TOKENS, logprobs=False, max_top_logprobs=0, capabilities=cannot, max_seq_len=64)
    hello = says(folder, "Hi")
    async with stack(folder, {"a:1": hello, "b:1": hello}, {"b:1": poor}) as running:
        answer = await running.chat(logprobs=True)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprobs")


async def test_another_model_under_one_name_gets_no_requests(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    mine, other = (dataclasses.replace(TOKENS, vocab_size=size) for size in (1000, 2000))
    hello = says(folder, "Hi")
    async with stack(folder, {"a:1": hello, "b:1": hello}, {"a:1": mine, "b:1": other}) as running:
        for _ in range(4):
            assert (await running.chat(max_tokens=2)).status_code == 200
        assert sorted(running.asked().values()) == [0, 4]
        away = [each for each in running.fleet.members.values() if each.conflict]
        assert "2000" in away[0].conflict
        assert "1000" in away[0].conflict


async def test_endpoints_that_are_found_at_one_moment_are_held_against_each_other(folder: Path) -> None:
    """Each is found in a thread of its own, where the tokenizer is loaded, which takes a while."""
    triton = settings_for(folder, triton={"endpoints": ["a:1", "b:1"]}).models[0].triton
    backends = {"a:1": ScriptedBackend(None), "b:1": ScriptedBackend(None)}
    fleet = Fleet(MODEL, triton, backends.__getitem__, SharedCounts())
    fleet.on_discovered = lambda _: time.sleep(0.1)
    await fleet.start()
    mine, other = (ScriptedEngine(says(folder, "Hi"), dataclasses.replace(TOKENS, vocab_size=n)) for n in (1, 2))
    await asyncio.gather(
        asyncio.to_thread(backends["a:1"].arrive, mine), asyncio.to_thread(backends["b:1"].arrive, other)
    )
    assert sorted(each.ready for each in fleet.members.values()) == [False, True]
    await fleet.close()


async def test_all_endpoints_may_become_another_model_one_after_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_GONE_S", 0.0)
    old, new = (dataclasses.replace(TOKENS, vocab_size=size) for size in (1000, 2000))
    hello = says(folder, "Hi")
    async with stack(folder, {"a:1": hello, "b:1": hello}, {"a:1": old, "b:1": old}, wait_s=0) as running:
        a, b = running.backends["a:1"], running.backends["b:1"]
        renewed = ScriptedEngine(hello, new)
        a.leave("replaced")
        a.arrive(renewed)
        assert "1000" in running.fleet.members["a:1"].conflict
        b.leave("replaced")
        a.arrive(renewed)  # it is looked for again and again
        b.arrive(renewed)
        assert (await running.chat(max_tokens=2)).status_code == 200
        assert await running.states() == ["ready", "ready"]
        assert running.fleet.features.vocab_size == 2000


async def test_endpoints_come_and_go_by_a_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "endpoints"
    path.write_text("a:1\n")
    gate = asyncio.Event()
    hello = says(folder, "Hi")
    scripts = {"a:1": holds(gate, hello), "b:1": hello, "c:1": hello}
    engines = {address: ScriptedEngine(script) for address, script in scripts.items()}
    backends: dict[str, ScriptedBackend] = {}

    def at(address: str) -> ScriptedBackend:
        return backends.setdefault(address, ScriptedBackend(None if address == "c:1" else engines[address]))

    settings = settings_for(folder, triton={"endpoints": [f"file://{path}"], "balance": {"lookup_s": 0.1}})
    fleets: list[Fleet] = []

    def make(model: Any) -> Fleet:
        fleets.append(Fleet(model.name, model.triton, at, SharedCounts()))
        return fleets[-1]

    app = create_app(settings, backend_factory=make)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(base_url="http://localhost", transport=transport) as client:
            body = {"model": MODEL, "messages": USER, "max_tokens": 2}
            old = asyncio.create_task(client.post("/v1/chat/completions", json=body))
            await engines["a:1"].asked.wait()
            path.write_text("b:1\n")
            await until(lambda: list(fleets[0].members) == ["b:1"])
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            assert not backends["a:1"].closed  # a request runs on it
            gate.set()
            assert (await old).status_code == 200
            await until(lambda: backends["a:1"].closed)
            path.write_text("c:1\n")  # which is not there yet: the one before it goes on
            await until(lambda: "c:1" in backends)
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            assert len(engines["b:1"].requests) == 2
            backends["c:1"].arrive(engines["c:1"])
            await until(lambda: backends["b:1"].closed)
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            assert len(engines["c:1"].requests) == 1


async def test_requests_without_a_token_leave_an_engine_that_is_found_dead(folder: Path) -> None:
    """And the last endpoint takes requests even so."""
    never, gate = asyncio.Event(), asyncio.Event()
    async with stack(folder, {"a:1": lambda _: [never], "b:1": holds(gate, says(folder, "Hi"))}) as running:
        asked = [asyncio.create_task(running.chat(max_tokens=2)) for _ in range(8)]
        await until(lambda: running.asked()["a:1"] == 4)
        watch = running.backends["a:1"].health
        watch._suspect("nothing has come for 10 s")
        assert await running.states() == ["stalled", "ready"]
        watch._enter("stalled")
        gate.set()
        answers = await asyncio.wait_for(asyncio.gather(*asked), 10)
        assert [answer.status_code for answer in answers] == [200] * 8
        assert running.engines["a:1"].running == 0
        before = running.asked()["a:1"]
        assert (await running.chat(max_tokens=2)).status_code == 200
        assert running.asked()["a:1"] == before


def asks(question: str, key: str | None = None, answers: tuple[str, ...] = ()) -> dict[str, Any]:
    """A request of a conversation: its system prompt is everybody's, its first question its own."""
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": question}]
    for answer in answers:
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 2}
    return body if key is None else {**body, "prompt_cache_key": key}


@pytest.mark.parametrize("named_by", ["question", "prompt_cache_key", "header"])
async def test_turns_of_a_conversation_go_to_one_endpoint(folder: Path, named_by: str) -> None:
    hello = says(folder, "Hi")
    endpoints = {f"{name}:1": hello for name in "abcd"}
    async with stack(folder, dict(endpoints), policy="prefix") as running:
        homes = set()
        for index in range(12):
            name = f"conversation {index}"
            question = name if named_by == "question" else "What now?"
            went = set()
            for turn in range(3):
                before = running.asked()
                answer = await running.client.post(
                    "/v1/chat/completions",
                    json=asks(question, name if named_by == "prompt_cache_key" else None, ("Hi",) * turn),
                    headers={"x-session-id": name} if named_by == "header" else {},
                )
                assert answer.status_code == 200, answer.text
                after = running.asked()
                went.add(next(address for address in after if after[address] > before[address]))
            assert len(went) == 1, (name, went)
            homes |= went
        assert len(homes) > 1


async def test_the_access_log_names_the_endpoint(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    hello = says(folder, "Hi")
    async with stack(folder, {"a:1": fails(), "b:1": hello}) as running:
        with caplog.at_level("INFO", "gateway.access"):
            while running.asked()["a:1"] == 0:
                await running.chat(max_tokens=2)
        served = [record.endpoint for record in caplog.records if record.name == "gateway.access"]  # type: ignore[attr-defined]
        assert set(served) == {"b:1"}
