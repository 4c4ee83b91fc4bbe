"""TLS on both sides of the gateway, with certificates on both ends, before the real Triton."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import LOOPBACK, Authority, Pair
from tests.ports import free_port
from tests.scripted_engine.replay import ScriptedServer, turn, write_scripted_model
from tests.stack import GatewayProcess

MODEL = "m"
STREAMS = 100
FLEET = "triton.fleet"
LONG: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "go on"}],
    "stream": True,
}
SECRET = "triton-grpc-protocol-door"


@dataclass(frozen=True)
class Certificates:
    """Of an authority for each side of the gateway."""

    inner: Authority
    outer: Authority
    gateway_to_triton: Pair
    gateway: Pair
    client: Pair

    def context(self, authority: Authority | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=(authority or self.outer).path)
        context.load_cert_chain(self.client.certificate, self.client.key)
        return context


@pytest.fixture
def certificates(tmp_path: Path, _inner: tuple[Authority, Pair]) -> Certificates:
    inner = _inner[0]
    outer = Authority(tmp_path / "outer", "Outer")
    mine = tmp_path / "mine"
    mine.mkdir()
    shown = inner.issue("gateway")
    own = Pair(mine / "tls.crt", mine / "tls.key")
    for mine_file, theirs in ((own.certificate, shown.certificate), (own.key, shown.key)):
        mine_file.write_bytes(theirs.read_bytes())
    return Certificates(inner, outer, own, outer.issue("gateway"), outer.issue("client"))


@pytest.fixture(scope="module")
def _inner(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Pair]:
    authority = Authority(tmp_path_factory.mktemp("inner"), "Inner")
    return authority, authority.issue("triton", hosts=(*LOOPBACK, FLEET))


@pytest.fixture(scope="module")
def tls_triton(
    chat_repository: Path, _inner: tuple[Authority, Pair], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ScriptedServer]:
    authority, pair = _inner
    with serving_by_tls(chat_repository, authority, pair, tmp_path_factory.mktemp("tls-triton")) as server:
        yield server


@contextlib.contextmanager
def serving_by_tls(chat_repository: Path, authority: Authority, pair: Pair, folder: Path) -> Iterator[ScriptedServer]:
    """A Triton that takes calls only by TLS, from clients with a certificate, and inference only with a secret."""
    options = (
        "--grpc-use-ssl=true",
        "--grpc-use-ssl-mutual=true",
        f"--grpc-server-cert={pair.certificate}",
        f"--grpc-server-key={pair.key}",
        f"--grpc-root-cert={authority.path}",
        "--grpc-restricted-protocol=inference,model-config:door=sesame",
    )
    model_dir = folder / "model"
    model_dir.mkdir()
    write_scripted_model(model_dir)
    server = ScriptedServer(chat_repository, model_dir, folder, options)
    server.triton.start()
    try:
        server.triton.wait_ready()
        yield server
    finally:
        server.triton.stop()


def settings(triton: ScriptedServer, files: Certificates, transport: str) -> dict[str, str]:
    return {
        "GATEWAY_MODEL": MODEL,
        "GATEWAY_TRITON_URL": triton.grpc_url,
        "GATEWAY_TOKENIZER": str(triton.model_dir),
        "GATEWAY_MAX_SEQ_LEN": "2048",
        "GATEWAY_TRANSPORT": transport,
        "GATEWAY_TRITON_TLS_CA": str(files.inner.path),
        "GATEWAY_TRITON_TLS_CERTIFICATE": str(files.gateway_to_triton.certificate),
        "GATEWAY_TRITON_TLS_KEY": str(files.gateway_to_triton.key),
        "GATEWAY_TRITON_METADATA": f"{SECRET}=sesame",
        "GATEWAY_TLS_CERTIFICATE": str(files.gateway.certificate),
        "GATEWAY_TLS_KEY": str(files.gateway.key),
        "GATEWAY_TLS_CLIENT_CA": str(files.outer.path),
        "GATEWAY_TLS_CLIENT_CERTIFICATES": "required",
        "GATEWAY_INTERNAL_PORT": str(free_port()),
    }


async def stream(client: httpx.AsyncClient, url: str, begun: asyncio.Event | None = None) -> bytes:
    """The text of one long stream."""
    said = b""
    async with client.stream("POST", url, json=LONG) as answer:
        assert answer.status_code == 200
        async for part in answer.aiter_raw():
            said += part
            if begun is not None:
                begun.set()
    return said


@pytest.mark.parametrize(
    ("transport", "workers", "hang_up"),
    [pytest.param("h2", "1", False, id="h2"), pytest.param("grpcio", "2", True, id="grpcio", marks=pytest.mark.long)],
)
async def test_certificates_of_both_sides_are_exchanged_under_a_hundred_streams(
    tls_triton: ScriptedServer,
    certificates: Certificates,
    tmp_path: Path,
    transport: str,
    workers: str,
    hang_up: bool,
) -> None:
    """None is lost; new connections are shown the new certificate, and Triton the gateway's new one."""
    env = settings(tls_triton, certificates, transport) | {"GATEWAY_WORKERS": workers}
    released = tmp_path / "released"
    tls_triton.play(turn("go on", text="one two three four", until=str(released)))
    with GatewayProcess(tmp_path / "log", **env) as gateway:
        url = f"https://localhost:{gateway.port}/v1/chat/completions"
        later = Authority(tmp_path / "later", "Later")
        limits = httpx.Limits(max_connections=STREAMS)
        async with httpx.AsyncClient(verify=certificates.context(), timeout=60, limits=limits) as client:
            begun = [asyncio.Event() for _ in range(STREAMS)]
            streams = [asyncio.create_task(stream(client, url, each)) for each in begun]
            await asyncio.wait_for(asyncio.gather(*(each.wait() for each in begun)), 60)
            certificates.gateway_to_triton.replace_by(certificates.inner.issue("gateway-later"))
            certificates.gateway.replace_by(later.issue("gateway"))
            if hang_up:
                gateway.signal(signal.SIGHUP)
            await asyncio.to_thread(gateway.logged, "connected with the new certificates")
            await asyncio.to_thread(gateway.logged, "server.tls: the files have changed", count=int(workers))
            assert await shakes_hands(gateway.port, certificates.context(later))
            assert not any(each.done() for each in streams)
            released.touch()
            answers = await asyncio.gather(*streams)
        assert {each.endswith(b"data: [DONE]\n\n") for each in answers} == {True}
        assert not any(b'"error"' in each for each in answers)
        async with httpx.AsyncClient(verify=certificates.context(later), timeout=60) as client:
            assert (await stream(client, url)).endswith(b"data: [DONE]\n\n")
        lines = gateway.log_lines()
        assert not [line for line in lines if "Traceback" in line or "engine not ready" in line]


@pytest.mark.long
@pytest.mark.parametrize("transport", ["h2", "grpcio"])
async def test_a_fleet_is_reached_by_tls(
    chat_repository: Path,
    tls_triton: ScriptedServer,
    certificates: Certificates,
    tmp_path: Path,
    transport: str,
) -> None:
    """By looked-up addresses, which no certificate names; with new certificates; and by what is left of it."""
    pair = certificates.inner.issue("second", hosts=(FLEET,))
    with serving_by_tls(chat_repository, certificates.inner, pair, tmp_path) as second:
        env = settings(tls_triton, certificates, transport) | {"GATEWAY_TRITON_TLS_SERVER_NAME": FLEET}
        env["GATEWAY_TRITON_ENDPOINTS"] = ",".join(
            f"dns:///{each.grpc_url.replace('127.0.0.1', 'localhost')}" for each in (tls_triton, second)
        )
        del env["GATEWAY_TRITON_URL"]
        for each in (tls_triton, second):
            each.play(turn("go on", text="one two three four"))
        with GatewayProcess(tmp_path / "log", **env) as gateway:
            url = f"https://localhost:{gateway.port}/v1/chat/completions"
            async with httpx.AsyncClient(verify=certificates.context(), timeout=60) as client:
                await both_are_ready(client, f"https://localhost:{gateway.port}/v1/models/{MODEL}")
                await all_end_well(client, url)
                assert tls_triton.requests()
                assert second.requests()
                certificates.gateway_to_triton.replace_by(certificates.inner.issue("gateway-later"))
                gateway.signal(signal.SIGHUP)
                await asyncio.to_thread(gateway.logged, "connected with the new certificates", count=2)
                await all_end_well(client, url)
                await asyncio.to_thread(second.triton.stop)
                before = len(tls_triton.requests())
                await all_end_well(client, url)
                assert len(tls_triton.requests()) == before + 8


async def both_are_ready(client: httpx.AsyncClient, url: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        endpoints = (await client.get(url)).json()["gateway"]["endpoints"]
        if [each["state"] for each in endpoints] == ["ready", "ready"]:
            return
        assert time.monotonic() < deadline, endpoints


async def all_end_well(client: httpx.AsyncClient, url: str) -> None:
    """Eight streams at once."""
    answers = await asyncio.gather(*(stream(client, url) for _ in range(8)))
    assert {each.endswith(b"data: [DONE]\n\n") and b'"error"' not in each for each in answers} == {True}


async def shakes_hands(port: int, context: ssl.SSLContext) -> bool:
    try:
        _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    except ssl.SSLCertVerificationError:
        return False
    writer.transport.abort()
    return True


def test_probes_need_no_certificate_and_clients_do(
    tls_triton: ScriptedServer, certificates: Certificates, tmp_path: Path
) -> None:
    env = settings(tls_triton, certificates, "auto")
    with GatewayProcess(tmp_path / "log", **env, GATEWAY_API_KEYS="k") as gateway:
        inner = f"http://127.0.0.1:{env['GATEWAY_INTERNAL_PORT']}"
        for path in ("/health/ready", "/health/live", "/health", "/metrics", "/version", "/docs", "/openapi.json"):
            assert httpx.get(inner + path).status_code == 200
        assert httpx.post(f"{inner}/v1/chat/completions", json=LONG).status_code == 404
        assert httpx.get(f"{inner}/v1/models").status_code == 404
        outer = f"https://localhost:{gateway.port}"
        context = ssl.create_default_context(cafile=certificates.outer.path)
        with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
            httpx.get(f"{outer}/health", verify=context)
        assert httpx.get(f"{outer}/health", verify=certificates.context()).status_code == 200
        assert httpx.get(f"{outer}/v1/models", verify=certificates.context()).status_code == 401
        assert gateway.logged("it sent no certificate")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http://localhost:{gateway.port}/health")
