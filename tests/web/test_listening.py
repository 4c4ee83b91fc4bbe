"""Sockets to listen on, and TLS on them by both event loops."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gateway.app import unread_answer
from gateway.http.certificates import CertificateError, FileBackedValue
from gateway.http.http_protocol import MOST_REJECTED, SPARE_FILES, HttpLimits, http_protocol
from gateway.http.listening import listen, with_duplicates
from gateway.http.listening_tls import listening_contexts
from gateway.http.server import Server, ServerStages, ServerTls
from gateway.http.shutdown import ShutdownState
from gateway.settings.tls_settings import ServerTlsSettings
from tests.certificates import Authority, Pair

CLIENTS = 16


class Accepted(asyncio.Protocol):
    def __init__(self, made: list[int], turn: list[int]) -> None:
        self._made, self._turn = made, turn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(self._turn[0])
        transport.close()


async def turns_of(sockets: list[socket.socket]) -> list[int]:
    """In which turns of the loop clients are taken that all come at once."""
    loop = asyncio.get_running_loop()
    made: list[int] = []
    turn = [0]
    servers = [await loop.create_server(lambda: Accepted(made, turn), sock=each) for each in sockets]
    clients = [socket.create_connection(sockets[0].getsockname()) for _ in range(CLIENTS)]
    while len(made) < CLIENTS:
        turn[0] += 1
        await asyncio.sleep(0)
    for client in clients:
        client.close()
    for server in servers:
        server.close()
    return made


def test_clients_that_come_together_are_taken_together() -> None:
    made = uvloop.run(turns_of(with_duplicates(listen("127.0.0.1", 0, 1)[0])))
    assert max(map(made.count, made)) == 8
    assert max(made) - min(made) == 1


def test_the_port_is_free_when_all_are_closed() -> None:
    sockets = with_duplicates(listen("127.0.0.1", 0, 1)[0])
    address = sockets[0].getsockname()
    assert {each.getsockname() for each in sockets} == {address}
    for each in sockets:
        each.close()
    with socket.create_server(address):
        pass


def test_an_empty_host_is_every_interface() -> None:
    sockets = listen("", 0, 1)[0]
    assert {each.getsockname()[0] for each in sockets} <= {"0.0.0.0", "::"}
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for each in sockets:
        each.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_where_it_cannot_listen_is_said(workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=r"^Cannot listen on 127.0.0.1 ") as raised:
            listen("127.0.0.1", port, workers)
        assert str(raised.value) == (
            f"Cannot listen on 127.0.0.1 port {port} (Address already in use). Set another port with GATEWAY_PORT or "
            "server.port."
        )
    with pytest.raises(OSError, match=r"^Cannot listen on a\.\.b port 1 "):  # no name, so nobody is asked for it
        listen("a..b", 1, workers)


ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SOON_S = 10


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("gateway")


def by_each_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    """Run a test by asyncio's event loop and by uvloop's."""

    def run(new_loop: Callable[[], asyncio.AbstractEventLoop], **given: Any) -> None:
        loop = new_loop()
        try:
            loop.run_until_complete(test(**given))
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    of_test = inspect.signature(test).parameters.values()
    new_loop = inspect.Parameter("new_loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([new_loop, *of_test])  # type: ignore[attr-defined] # its fixtures
    loops = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("new_loop", loops, ids=["asyncio", "uvloop"])(run)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    body = await request.body()
    await PlainTextResponse(f"{scope['scheme']} {len(body)}")(scope, receive, send)


def contexts(pair: Pair, **more: Any) -> FileBackedValue[ssl.SSLContext]:
    given = {"certificate": pair.certificate, "key": pair.key, **more}
    return listening_contexts(ServerTlsSettings.model_validate(given))


@asynccontextmanager
async def listening(made: FileBackedValue[ssl.SSLContext], bounds: HttpLimits | None = None) -> AsyncIterator[int]:
    bounds = bounds or HttpLimits()
    http = http_protocol(unread_answer, bounds)
    config = uvicorn.Config(hello, http=http, ws="none", lifespan="off", log_config=None)
    config.timeout_graceful_shutdown = 1
    stages = ServerStages(0, 0, lambda: None, lambda: None, nothing)
    server = Server(config, stages, ShutdownState(), ServerTls(made, bounds))
    with socket.create_server(("127.0.0.1", 0)) as open_socket:
        running = asyncio.create_task(server._serve([open_socket]))
        try:
            yield open_socket.getsockname()[1]
        finally:
            writers = [_opened.pop() for _ in list(_opened)]
            for writer in writers:
                writer.transport.abort()
            await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)
            server.should_exit = True
            await running


async def nothing() -> None:
    """Nothing happens at this stage."""


def client(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.path)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


_opened: list[asyncio.StreamWriter] = []  # of the server that runs


async def connect(
    port: int, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    _opened.append(writer)
    return reader, writer


async def answer(port: int, context: ssl.SSLContext, request: bytes = ASK) -> str:
    """The body of the answer to one request."""
    reader, writer = await connect(port, context)
    writer.write(request)
    await writer.drain()
    return await body(reader)


async def first_word(port: int, context: ssl.SSLContext) -> str:
    """Of the answer to one request; nothing where the connection is not taken."""
    try:
        return (await answer(port, context)).partition(" ")[0]
    except (OSError, asyncio.IncompleteReadError):
        return ""


async def body(reader: asyncio.StreamReader) -> str:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_S)
    length = next(int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: "))
    return (await reader.readexactly(length)).decode()


@by_each_loop
async def test_requests_come_by_tls(authority: Authority, pair: Pair) -> None:
    async with listening(contexts(pair)) as port:
        assert await answer(port, client(authority)) == "https 0"
        large = 3_000_000
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % large + bytes(large)
        assert await answer(port, client(authority), post) == f"https {large}"


@by_each_loop
async def test_a_request_that_comes_with_the_end_of_the_handshake_is_served(authority: Authority, pair: Pair) -> None:
    """The client's last flight and its request in one segment: nothing of it may be lost."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client(authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with listening(contexts(pair)) as port:
        reader, writer = await connect(port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        tls.write(ASK)
        writer.write(outgoing.read())
        got = b""
        while b"https 0" not in got:
            if not (more := decrypted(tls)):
                incoming.write(await asyncio.wait_for(reader.read(65536), SOON_S))
            got += more


def decrypted(tls: ssl.SSLObject) -> bytes:
    """What can be read; nothing where more must come first."""
    try:
        return tls.read()
    except ssl.SSLWantReadError:
        return b""


@by_each_loop
async def test_clients_show_certificates_where_they_must(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "Strangers").issue("stranger")
    known = authority.issue("client")
    made = contexts(pair, client_ca=authority.path, client_certificates="required")
    async with listening(made) as port:
        assert await answer(port, client(authority, known)) == "https 0"
        for rejected in (client(authority), client(authority, stranger)):
            assert await first_word(port, rejected) == ""
    made = contexts(pair, client_ca=authority.path, client_certificates="optional")
    async with listening(made) as port:
        assert await answer(port, client(authority)) == "https 0"
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await answer(port, client(authority, stranger))


@by_each_loop
async def test_an_authority_that_is_taken_away_lets_nobody_in(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    """Not by a session of before either."""
    other = Authority(tmp_path / "other", "Other")
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes(authority.path.read_bytes() + other.path.read_bytes())
    made = contexts(pair, client_ca=trusted, client_certificates="required")
    async with listening(made) as port:
        context = client(authority, other.issue("client"))
        session = await asyncio.to_thread(_session, port, context)
        assert await asyncio.to_thread(_session, port, context, session) is not None
        trusted.write_bytes(authority.path.read_bytes())
        await made.look(now=True)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(_session, port, context, session)
        assert await answer(port, client(authority, authority.issue("client2"))) == "https 0"


def _session(port: int, context: ssl.SSLContext, before: ssl.SSLSession | None = None) -> ssl.SSLSession | None:
    """Ask once, by the session of an earlier connection; the session."""
    plain = socket.create_connection(("127.0.0.1", port))
    with plain, context.wrap_socket(plain, server_hostname="localhost", session=before) as tls:
        tls.sendall(ASK)
        if not tls.recv(1000):
            raise ConnectionResetError
        return tls.session


@by_each_loop
async def test_what_does_not_shake_hands_costs_little(
    authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening(contexts(pair), bounds=HttpLimits(head_s=0.3, connections=4)) as port:
        reader, writer = await connect(port)
        writer.write(ASK)
        assert b"HTTP" not in await asyncio.wait_for(reader.read(), SOON_S)
        silent = [await connect(port) for _ in range(3)]
        for reader, _ in silent:  # the time of a handshake has a bound
            assert await asyncio.wait_for(reader.read(), SOON_S) == b""
        reader, writer = await connect(port)
        writer.write(b"\x16\x03\x01" + bytes(range(200)))
        await asyncio.wait_for(reader.read(), SOON_S)
        assert await answer(port, client(authority)) == "https 0"
    assert "it sent plain HTTP" in caplog.text
    assert "Traceback" not in caplog.text
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


@by_each_loop
async def test_handshakes_count_among_the_connections(authority: Authority, pair: Pair) -> None:
    """Beyond the bound a connection is closed before it costs anything, until others have ended."""
    async with listening(contexts(pair), bounds=HttpLimits(connections=2, head_s=2)) as port:
        idle = [await connect(port) for _ in range(2 + MOST_REJECTED)]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await answer(port, client(authority))
        for _, each in idle:
            each.transport.abort()
        deadline = time.monotonic() + SOON_S
        while await first_word(port, client(authority)) != "https":
            assert time.monotonic() < deadline


@by_each_loop
async def test_silent_handshakes_do_not_hold_the_last_files(authority: Authority, pair: Pair) -> None:
    """Where the process may open few files, all of which are for rejected connections here."""
    async with listening(contexts(pair), bounds=HttpLimits(files=SPARE_FILES)) as port:
        silent = [await connect(port) for _ in range(SPARE_FILES)]
        began = time.monotonic()
        for reader, _ in silent[: SPARE_FILES // 2]:
            assert await asyncio.wait_for(reader.read(), SOON_S) == b""
        assert time.monotonic() - began < SOON_S / 2  # the time of a handshake is longer
        assert "limit of open files" in await answer(port, client(authority))


@by_each_loop
async def test_the_oldest_version_is_a_setting(authority: Authority, pair: Pair) -> None:
    old = client(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with listening(contexts(pair)) as port:
        assert await answer(port, old) == "https 0"
    async with listening(contexts(pair, minimum_version="1.3")) as port:
        assert await first_word(port, old) == ""
        assert await answer(port, client(authority)) == "https 0"


def test_an_expired_certificate_is_not_begun_with(authority: Authority) -> None:
    with pytest.raises(CertificateError, match="has expired"):
        contexts(authority.issue("old", days=-1))
