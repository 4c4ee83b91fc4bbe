"""A backend without Triton, with it, and while it comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scripted_triton import ScriptedTriton, ask, drop_tensors, stock_configs, tokens

from gateway.generation.engine import EngineError, EngineFeatures, ErrorKind
from gateway.triton import TritonBackend
from gateway.triton import triton_backend as backend_module
from gateway.triton import triton_client as client_module
from gateway.triton.transports import TransportName
from gateway.triton.triton_backend import HealthChecks
from tests.triton.calls import of
from tests.waiting import until


class Running:
    """A request whose engine has just responded, as the backend's watch asks it."""

    prompt_tokens = 1
    responded_at = staticmethod(time.perf_counter)


async def generate(backend: TritonBackend) -> list[int]:
    return [token async for chunk in backend.engine.generate(ask()) for token in chunk.ids]


async def test_it_starts_without_triton_and_serves_when_it_comes(unused_port: int) -> None:
    async with TritonBackend(f"127.0.0.1:{unused_port}", "ensemble") as backend:
        with pytest.raises(EngineError, check=of(ErrorKind.UNAVAILABLE)):
            await backend.wait_ready(0.2)
        with pytest.raises(EngineError, check=of(ErrorKind.UNAVAILABLE)):
            await generate(backend)
        assert not backend.status.ready
        assert "unreachable" in backend.status.reason
        async with ScriptedTriton(port=unused_port):
            await backend.wait_ready(10)
            assert backend.status.ready
            assert await generate(backend) == [7]


async def test_a_model_that_is_still_loading() -> None:
    configs = stock_configs()
    late = configs.pop("postprocessing")
    async with ScriptedTriton(configs=configs) as server, TritonBackend(server.url, "ensemble") as backend:
        with pytest.raises(EngineError):
            await backend.wait_ready(0.3)
        configs["postprocessing"] = late
        await backend.wait_ready(10)


async def test_it_notices_a_restart_and_discovers_anew(unused_port: int) -> None:
    async with ScriptedTriton(port=unused_port) as before, TritonBackend(before.url, "ensemble") as backend:
        await backend.wait_ready(10)
        assert backend.engine.features.max_top_logprobs == 20
        await before.stop()
        await until(lambda: not backend.status.ready)
        configs = stock_configs()
        drop_tensors(configs["tensorrt_llm"], ["num_top_log_probs"])
        async with ScriptedTriton(configs=configs, port=unused_port):
            await backend.wait_ready(10)
            assert backend.engine.features.max_top_logprobs == 0


async def test_checks_that_are_late_refuse_requests_only_after_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "DEADLINE_S", 0.1)
    async with ScriptedTriton() as server, TritonBackend(server.url, "ensemble", health=HealthChecks(0.1)) as backend:
        await backend.wait_ready(10)
        server.slow_checks = 2
        await until(lambda: not server.slow_checks)
        assert backend.status.ready
        assert await generate(backend) == [7]
        before = server.checks
        await until(lambda: server.checks > before + 8)  # two rounds of answers
        server.slow_checks = 2
        await until(lambda: not server.slow_checks)
        assert backend.status.ready, "they were not in a row with those before"
        server.slow_checks = 100
        await until(lambda: not backend.status.ready)
        assert "in time" in backend.status.reason
        with pytest.raises(EngineError, check=of(ErrorKind.UNAVAILABLE)):
            await generate(backend)
        server.slow_checks = 0
        await backend.wait_ready(10)
        assert await generate(backend) == [7]


async def test_an_engine_that_sends_tokens_lives_however_late_its_checks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "DEADLINE_S", 0.1)
    async with (
        ScriptedTriton() as server,
        TritonBackend(server.url, "ensemble", health=HealthChecks(0.1, 2)) as backend,
    ):
        await backend.wait_ready(10)
        running = Running()
        backend.health.began(running)
        server.slow_checks = 100
        await until(lambda: server.slow_checks <= 94)
        assert backend.status.ready
        backend.health.ended(running)
        await until(lambda: not backend.status.ready)


async def test_a_health_reply_that_cannot_be_decoded_is_a_failed_check(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedTriton() as server:
        server.garbled_checks = 1
        async with TritonBackend(server.url, "ensemble", health=HealthChecks(0.05)) as backend:
            await backend.wait_ready(10)
            before, server.garbled_checks = server.checks, 1
            await until(lambda: server.checks > before + 8)
            assert backend.status.ready
            del server.configs["postprocessing"]
            await until(lambda: not backend.status.ready)
            server.garbled_checks = 10**6
            await until(lambda: "cannot be decoded" in backend.status.reason)
    assert not [record for record in caplog.records if "restarts in" in record.message]


async def test_a_defect_in_the_supervision_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def check(_features: EngineFeatures) -> None:
        if not any("restarts in" in record.message for record in caplog.records):
            raise TypeError("of some defect")

    async with ScriptedTriton() as server, TritonBackend(server.url, "ensemble", on_discovered=check) as backend:
        await until(lambda: "could not be parsed" in backend.status.reason)
        await backend.wait_ready(10)
    (said,) = [record for record in caplog.records if "restarts in" in record.message]
    assert said.message == "the health check of a Triton failed and restarts in 0.5 s"
    assert said.exc_info


async def test_a_triton_that_is_back_is_found_while_requests_ask_for_it(
    unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "_FIRST_RETRY_S", 600)  # it would not be looked for in time otherwise

    async with TritonBackend(f"127.0.0.1:{unused_port}", "ensemble") as backend:
        await until(lambda: "unreachable" in backend.status.reason)
        async with ScriptedTriton(port=unused_port):
            asked = 0
            while not backend.status.ready and asked < 500:
                with contextlib.suppress(EngineError):
                    await generate(backend)
                asked += 1
                await asyncio.sleep(0.01)
            assert backend.status.ready


async def test_the_hook_sees_features_and_may_refuse() -> None:
    seen: list[EngineFeatures] = []

    def check(features: EngineFeatures) -> None:
        seen.append(features)
        if len(seen) == 1:
            raise ValueError("models[0].max_seq_len is not set")

    async with ScriptedTriton() as server, TritonBackend(server.url, "ensemble", on_discovered=check) as backend:
        await until(lambda: "max_seq_len" in backend.status.reason)
        with pytest.raises(EngineError, check=of(ErrorKind.UNSERVABLE)):
            await generate(backend)
        await backend.wait_ready(10)
        assert backend.status.features == seen[1]


async def test_a_misconfiguration_is_the_reason_until_it_is_mended(unused_port: int) -> None:
    configs = stock_configs()
    configs["tensorrt_llm"].input.add(name="image")
    url = f"127.0.0.1:{unused_port}"
    async with ScriptedTriton(configs=configs, port=unused_port) as server, TritonBackend(url, "ensemble") as backend:
        await until(lambda: "requires inputs that the gateway does not send: image" in backend.status.reason)
        with pytest.raises(EngineError, check=of(ErrorKind.UNSERVABLE)):
            await backend.wait_ready(0)
        await server.stop()
        await until(lambda: "unreachable" in backend.status.reason)
        with pytest.raises(EngineError, check=of(ErrorKind.UNAVAILABLE)):
            await generate(backend)
        async with ScriptedTriton(port=unused_port):
            await backend.wait_ready(10)
            assert await generate(backend) == [7]


async def test_a_server_that_is_gone_needs_no_second_check_and_after_closing_nothing_is_served() -> None:
    health = HealthChecks(600, 100)
    async with ScriptedTriton() as server:
        async with TritonBackend(server.url, "ensemble", health=health) as backend:
            await backend.wait_ready(10)
            await server.stop()
            await until(lambda: not backend.status.ready)
        with pytest.raises(EngineError):
            _ = backend.engine
        assert "shutting down" in backend.status.reason


@pytest.mark.parametrize("transport", ["h2", "grpcio"])
async def test_connections_that_the_server_ends_in_order_cost_no_request(transport: TransportName) -> None:
    """As servers with a longest age of connections and proxies do, by GOAWAY."""
    options = [("grpc.max_connection_age_ms", 100), ("grpc.max_connection_age_grace_ms", 60_000)]
    connections = set()

    async def script(_request: Any, context: Any) -> AsyncIterator[Any]:
        connections.add(context.peer())
        yield tokens(7, final=True)

    async with (
        ScriptedTriton(script, options=options) as server,
        TritonBackend(server.url, "ensemble", "tokens", transport=transport) as backend,
    ):
        await backend.wait_ready(10)
        connections.clear()
        number, deadline = 0, time.monotonic() + 30
        while len(connections) < 4:
            number += 1
            given = [token async for chunk in backend.engine.generate(ask(f"r{number}")) for token in chunk.ids]
            assert given == [7]
            assert time.monotonic() < deadline
