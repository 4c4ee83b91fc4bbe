"""The choice between the transports: h2 where it reaches the server, else grpcio, with a logged reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import grpc
import pytest
from raw_http2 import END_HEADERS, END_STREAM, SETTINGS, Peer, RawServer, frame
from scripted_triton import ScriptedTriton, ask, play, response, string, tokens
from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError
from gateway.settings import ConfigError, load_settings
from gateway.triton import TritonBackend
from gateway.triton.grpcio import open_channel
from gateway.triton.transport import Transport, TransportError
from gateway.triton.transports import AutoTransport, not_for_h2
from tests.triton.calls import connected, read_all

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy", "GRPC_ADDRESS_HTTP_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What is logged about the choice."""
    return lambda: [each.getMessage() for each in caplog.records if each.name == "gateway.triton.transports"]


def auto(url: str) -> AbstractAsyncContextManager[Transport]:
    return connected("auto", url)


async def answers(transport: Transport) -> list[Any]:
    return await read_all(transport.infer(service_pb2.ModelInferRequest(model_name="m"), timeout=20))


class Relay:
    """Connects its clients to a port of 127.0.0.1; an async context manager.

    Attributes:
        asked: heads of the requests for a tunnel, by CONNECT, which clients send first where ``tunnel`` is set.
        connections: how many clients came.
    """

    def __init__(self, port: int, *, tunnel: bool = False) -> None:
        self._port, self._tunnel = port, tunnel
        self._frozen: list[asyncio.Event] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._full = False
        self.asked: list[bytes] = []

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for writer in self._writers:
            await writer.wait_closed()

    @property
    def connections(self) -> int:
        return len(self._frozen)

    def freeze(self) -> None:
        """Carry nothing more on the present connections, and say nothing of it."""
        for each in self._frozen:
            each.set()

    def keep_the_first(self) -> None:
        """Cut all connections but the first, and take no more."""
        self._full = True
        for writer in self._writers[1:]:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frozen = asyncio.Event()
        self._frozen.append(frozen)
        self._writers.append(writer)
        if self._full:
            writer.close()
            return
        if self._tunnel:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._carry(reader, back, frozen), self._carry(there, writer, frozen))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, frozen: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65_536):
                if not frozen.is_set():
                    target.write(data)
            target.close()
            await target.wait_closed()


async def prepared(transport: Transport) -> None:
    """Prepare a transport as soon as grpcio has found the server again."""
    for _ in range(200):
        with suppress(EngineError):
            await transport.prepare()
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the server was not found")


async def test_a_usual_server_is_reached_by_h2(log: Any) -> None:
    async with ScriptedTriton() as server, auto(server.url) as transport:
        await transport.prepare()
        assert transport.name == "h2"
        assert len(await answers(transport)) == 1
        assert "triton-openai-gateway" in server.metadata[0]["user-agent"]
    assert log() == []


async def test_a_server_that_compresses_is_reached_by_grpcio(log: Any) -> None:
    said = response(text_output=string(b"a" * 10_000))
    async with (
        ScriptedTriton(lambda *_: play(said, said), compression=grpc.Compression.Gzip) as server,
        auto(server.url) as transport,
    ):
        for _ in range(2):
            await transport.prepare()
            assert transport.name == "grpcio"
        assert await answers(transport) == [said] * 2
        assert "grpc-python-asyncio" in server.metadata[0]["user-agent"]
    assert log() == ["requests use the transport grpcio: its responses may be compressed (gzip)"]


async def test_a_server_that_starts_to_compress_is_left_to_grpcio(log: Any) -> None:
    said = response(text_output=string(b"a" * 10_000))

    async def script(_request: Any, context: Any) -> AsyncIterator[Any]:
        context.set_compression(grpc.Compression.Gzip)
        yield said

    async with ScriptedTriton(script) as server, auto(server.url) as transport:
        await transport.prepare()
        assert transport.name == "h2"
        with pytest.raises(TransportError) as error:
            await answers(transport)
        assert error.value.status == "INTERNAL"
        assert await answers(transport) == [said]
    reason = "the server sends a compressed message, although compression was not offered"
    assert log() == [f"requests use the transport grpcio: {reason}"]


async def test_a_server_that_breaks_the_protocol_is_left_to_grpcio(log: Any) -> None:
    async def attack(peer: Peer, stream: int) -> None:
        if server.peers.index(peer) == 0:
            peer.send(frame(SETTINGS, 0, stream))
        else:
            peer.send(peer.headers(stream), peer.trailers(stream))

    async with RawServer(attack) as server, auto(server.url) as transport:
        for _ in range(2):
            call = transport.infer(service_pb2.ModelInferRequest(model_name="bad"), timeout=20)
            try:
                assert await call.read() is None
            except TransportError as error:
                assert error.status == "UNAVAILABLE"  # noqa: PT017
        assert transport.name == "grpcio"
    assert log() == ["requests use the transport grpcio: the server broke the protocol: a frame of type 4 on a stream"]


async def test_a_server_that_is_away_decides_nothing(log: Any, unused_port: int) -> None:
    async with ScriptedTriton(port=unused_port) as server, auto(server.url) as transport:
        await server.stop()
        with pytest.raises(EngineError):
            await transport.prepare()
        assert transport.name == "h2"
        await server.start()
        await prepared(transport)
        assert transport.name == "h2"
        assert len(await answers(transport)) == 1
    assert log() == []


async def test_pages_instead_of_answers_are_a_reason_for_grpcio(log: Any) -> None:
    async def page(peer: Peer, stream: int) -> None:
        peer.send(peer.headers(stream, (":status", "404"), flags=END_HEADERS | END_STREAM))

    async with RawServer(page) as odd, ScriptedTriton() as server, open_channel(server.url) as channel:
        transport = AutoTransport(odd.url, channel)
        for _ in range(3):
            await transport.prepare()
            assert transport.name == "grpcio"
        assert len(await answers(transport)) == 1
        await odd.until(lambda: all(peer.closed for peer in odd.peers))  # nothing is left of the attempts
        await transport.close()
    assert log() == ["requests use the transport grpcio: UNIMPLEMENTED: HTTP status '404'"]


async def test_a_dead_connection_is_no_reason_for_grpcio(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a power failure or a broken network: nothing tells that the old connection is dead."""
    monkeypatch.setattr("gateway.triton.transports.DEADLINE_S", 0.3)
    async with ScriptedTriton() as server, Relay(server.port) as relay, open_channel(server.url) as channel:
        transport = AutoTransport(relay.url, channel)
        await transport.prepare()
        relay.freeze()
        await transport.prepare()
        assert transport.name == "h2"
        assert len(await answers(transport)) == 1
        assert relay.connections == 2
        await transport.close()
    assert log() == []


async def test_requests_that_find_no_way_by_h2_go_where_the_checks_go(log: Any) -> None:
    """A proxy that allows one connection for each client, or that cut the newer one: grpcio's checks still pass."""
    async with (
        ScriptedTriton() as server,
        Relay(server.port) as relay,
        TritonBackend(relay.url, "ensemble", transport="auto") as backend,
    ):
        await backend.wait_ready(20)
        assert log() == []
        relay.keep_the_first()
        while not log():
            with suppress(EngineError):
                assert [chunk.ids async for chunk in backend.engine.generate(ask())]
            await asyncio.sleep(0.02)  # a refusal leaves the loop no time
        assert [chunk.ids async for chunk in backend.engine.generate(ask())] == [(7,)]
    assert [line.partition(":")[0] for line in log()] == ["requests use the transport grpcio"]


async def test_a_server_that_comes_back_as_a_usual_one_is_reached_by_h2_again(log: Any, unused_port: int) -> None:
    async with ScriptedTriton(port=unused_port, compression=grpc.Compression.Gzip) as odd, auto(odd.url) as transport:
        await transport.prepare()
        assert transport.name == "grpcio"
        await odd.stop()
        async with ScriptedTriton(port=unused_port):
            await prepared(transport)
            assert transport.name == "h2"
            assert len(await answers(transport)) == 1
    assert log()[1:] == ["requests use the transport h2: the server supports it"]


async def test_a_proxy_of_the_environment_is_for_grpcio(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is a tunnel, which grpcio asks for by CONNECT."""
    async with ScriptedTriton(lambda *_: play(tokens(7))) as server, Relay(server.port, tunnel=True) as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy.url}")
        async with auto(server.url) as transport:
            await transport.prepare()
            assert transport.name == "grpcio"
            assert len(await answers(transport)) == 1
        assert proxy.asked[0].startswith(f"CONNECT {server.url} ".encode())
    assert log() == ["requests use the transport grpcio: the environment names a proxy"]


@pytest.mark.parametrize(
    ("url", "environment", "by_h2"),
    [
        ("triton:8001", {}, True),
        ("grpc://triton:8001", {}, True),
        ("[::1]:8001", {}, True),
        ("unix:/run/triton.sock", {}, False),
        ("dns:triton:8001", {}, False),
        ("ipv4:10.0.0.1:8001,10.0.0.2:8001", {}, False),
        ("dns:///triton:8001", {}, False),
        ("triton:8001", {"http_proxy": "http://proxy:1"}, False),
        ("triton:8001", {"http_proxy": ""}, True),
        ("triton:8001", {"HTTP_PROXY": "http://proxy:1"}, True),  # grpcio reads the small ones only
        ("triton:8001", {"https_proxy": "http://proxy:1", "no_proxy": "localhost, triton"}, True),
        ("triton.svc:8001", {"grpc_proxy": "http://proxy:1", "no_proxy": ".svc"}, True),
        ("triton.svc:8001", {"grpc_proxy": "http://proxy:1", "no_proxy": "svc"}, False),
        ("triton:8001", {"grpc_proxy": "http://proxy:1", "no_grpc_proxy": "x", "no_proxy": "triton"}, False),
        ("10.1.2.3:8001", {"http_proxy": "http://proxy:1", "no_proxy": "10.0.0.0/8"}, True),
        ("10.1.2.3:8001", {"http_proxy": "http://proxy:1", "no_proxy": "192.168.0.0/16,/"}, False),
        ("10.1.2.3:8001", {"GRPC_ADDRESS_HTTP_PROXY": "http://proxy:1"}, False),
    ],
)
def test_addresses_and_proxies(url: str, environment: dict[str, str], by_h2: bool) -> None:
    assert (not_for_h2(url, environment) is None) == by_h2


ONE = {"GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "triton:8001"}


def test_the_gateway_chooses_unless_said_otherwise() -> None:
    assert load_settings(environment=ONE).models[0].triton.transport == "auto"
    for name in ("auto", "grpcio", "h2"):
        assert load_settings(environment=ONE | {"GATEWAY_TRANSPORT": name}).models[0].triton.transport == name


def test_what_is_no_transport_is_refused_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"models\[0\]\.triton\.transport \(GATEWAY_TRANSPORT\)"):
        load_settings(environment=ONE | {"GATEWAY_TRANSPORT": "http3"})


@pytest.mark.parametrize("scheme", ["grpcs://", "https://", "grpc+tls://"])
def test_a_scheme_is_no_part_of_the_address(scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"models\[0\]\.triton\.url"):
        load_settings(environment=ONE | {"GATEWAY_TRITON_URL": f"{scheme}triton:8001", "GATEWAY_TRANSPORT": "h2"})
