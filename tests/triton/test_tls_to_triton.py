"""TLS towards a server that plays Triton, by both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from scripted_triton import ScriptedTriton, ask

from gateway.generation.engine import EngineError
from gateway.http.certificates import CertificateError
from gateway.settings import TritonSettings
from gateway.triton import TritonBackend
from gateway.triton.access import TritonAccess, triton_access
from gateway.triton.tls_trouble import tls_trouble
from gateway.triton.transports import TransportName
from tests.certificates import Authority, Pair


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_pair(authority: Authority) -> Pair:
    return authority.issue("server")


def serving(pair: Pair, clients: Authority | None = None) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(pair.key.read_bytes(), pair.certificate.read_bytes())],
        root_certificates=clients.path.read_bytes() if clients else None,
        require_client_auth=clients is not None,
    )


def access(**tls: Any) -> TritonAccess:
    return triton_access(TritonSettings.model_validate({"url": "a:1", "tls": tls}))


async def count(backend: TritonBackend, request_id: str = "r1") -> int:
    return sum([len(chunk.ids) async for chunk in backend.engine.generate(ask(request_id))])


async def reason_of(server: ScriptedTriton, terms: TritonAccess, transport: TransportName = "auto") -> str:
    """Why a backend is not ready, once it has tried."""

    async def poll(backend: TritonBackend) -> str:
        while "has not been reached yet" in backend.status.reason:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.02)
        return backend.status.reason

    async with TritonBackend(server.url, "ensemble", "tokens", transport=transport, access=terms) as backend:
        reason = await asyncio.wait_for(poll(backend), 10)
        with pytest.raises(EngineError):
            _ = backend.engine
        return reason


ANY = pytest.mark.parametrize("transport_name", ["grpcio", "h2", "auto"])


@ANY
@pytest.mark.parametrize("mutual", [False, True], ids=["the server's certificate", "both certificates"])
async def test_a_triton_with_tls_is_served(
    authority: Authority, server_pair: Pair, transport_name: TransportName, mutual: bool
) -> None:
    own = authority.issue("gateway")
    terms = access(ca=authority.path, **(_named(own) if mutual else {}))
    async with (
        ScriptedTriton(credentials=serving(server_pair, authority if mutual else None)) as server,
        TritonBackend(server.url, "ensemble", "tokens", transport=transport_name, access=terms) as backend,
    ):
        await backend.wait_ready(10)
        assert await count(backend) == 1


async def test_a_name_that_is_not_the_host_is_checked_where_it_is_set(
    authority: Authority, transport_name: TransportName
) -> None:
    pair = authority.issue("inner", hosts=("triton.internal",))
    async with ScriptedTriton(credentials=serving(pair)) as server:
        reason = await reason_of(server, access(ca=authority.path), transport_name)
        assert reason == (
            f"The certificate of Triton at {server.url} is not for 127.0.0.1: set triton.tls.server_name to a name "
            "in the certificate"
        )
        terms = access(ca=authority.path, server_name="triton.internal")
        async with TritonBackend(server.url, "ensemble", "tokens", transport=transport_name, access=terms) as backend:
            await backend.wait_ready(10)
            assert await count(backend) == 1


async def test_operators_are_told_what_is_wrong(authority: Authority, server_pair: Pair, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "Strangers")
    foreign = stranger.issue("foreign")
    old = authority.issue("old", days=-1)
    async with ScriptedTriton(credentials=serving(server_pair, authority)) as server:
        url = server.url
        assert await reason_of(server, TritonAccess()) == (
            f"Triton at {url} requires TLS, but the gateway does not use TLS: set triton.tls (with ca, or {{}})"
        )
        assert "is not trusted" in await reason_of(server, access(ca=stranger.path))
        assert await reason_of(server, access(ca=authority.path)) == (
            f"Triton at {url} requires a client certificate: set triton.tls.certificate and triton.tls.key"
        )
        terms = access(ca=authority.path, certificate=foreign.certificate, key=foreign.key)
        assert "does not accept the gateway's certificate" in await reason_of(server, terms)
    async with ScriptedTriton(credentials=serving(old)) as server:
        reason = await reason_of(server, access(ca=authority.path))
        assert reason == f"The certificate of Triton at {server.url} has expired"
    async with ScriptedTriton() as server:
        reason = await reason_of(server, access(ca=authority.path))
        assert reason == (
            f"Triton at {server.url} does not use TLS: remove triton.tls, or start Triton with --grpc-use-ssl"
        )


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda pair, _: {"certificate": pair.certificate, "key": "other"}, "does not match the certificate in"),
        (lambda pair, _: {"certificate": pair.certificate, "key": pair.key.with_name("none")},
         "cannot be read (No such"),
        (lambda pair, _: {"certificate": pair.key, "key": pair.key}, "contains no certificate"),
        (lambda pair, _: {"ca": pair.key}, "contains no CA certificates"),
        (lambda _pair, made: _named(made.issue("late", days=-2)), "has expired"),
        (lambda _pair, made: _named(made.issue("locked", password=b"x")), "is encrypted"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used_are_refused(
    authority: Authority,
    server_pair: Pair,
    spoil: Callable[[Pair, Authority], dict[str, Any]],
    sentence: str,
) -> None:
    given = spoil(server_pair, authority)
    if given.get("key") == "other":
        given["key"] = authority.issue("another").key
    with pytest.raises(CertificateError) as told:
        access(**given)
    assert sentence in str(told.value)


def _named(pair: Pair) -> dict[str, Any]:
    return {"certificate": pair.certificate, "key": pair.key}


@ANY
async def test_metadata_goes_with_every_call(transport_name: TransportName) -> None:
    settings = {"url": "a:1", "metadata": {"triton-grpc-protocol-secret": "sesame"}}
    terms = triton_access(TritonSettings.model_validate(settings))
    heard: list[Any] = []

    class Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            heard.append((details.method, dict(details.invocation_metadata).get("triton-grpc-protocol-secret")))
            return await continuation(details)

    async with (
        ScriptedTriton(interceptors=[Interceptor()]) as server,
        TritonBackend(server.url, "ensemble", "tokens", transport=transport_name, access=terms) as backend,
    ):
        await backend.wait_ready(10)
        assert await count(backend) == 1
    assert {secret for _, secret in heard} == {"sesame"}
    assert any(method.endswith("/ModelStreamInfer") for method, _ in heard)
    assert any(method.endswith("/ModelConfig") for method, _ in heard)


async def test_a_pair_that_cannot_be_used_leaves_the_former_one(
    authority: Authority, server_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = authority.issue("kept"), authority.issue("unfit")
    terms = access(ca=authority.path, certificate=own.certificate, key=own.key)
    before = terms.tls.value
    own.key.write_bytes(other.key.read_bytes())
    await terms.tls.look(now=True)
    assert terms.tls.value is before
    assert "does not match the certificate in" in caplog.text
    assert "the previous certificates stay in use" in caplog.text
    own.certificate.write_bytes(other.certificate.read_bytes())
    await terms.tls.look(now=True)
    assert terms.tls.value is not before


async def test_what_is_no_tls_of_tritons_is_none_of_tls(unused_port: int) -> None:
    assert await tls_trouble(f"127.0.0.1:{unused_port}", TritonAccess()) is None
    assert await tls_trouble("dns:triton", TritonAccess()) is None


async def test_a_cancelled_search_for_the_reason_ends(unused_port: int) -> None:
    for turns in range(40):  # of the event loop, before it is cancelled: among them the one in which it ends
        asking = asyncio.create_task(tls_trouble(f"127.0.0.1:{unused_port}", TritonAccess()))
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.cancel():
            with pytest.raises(asyncio.CancelledError):
                await asking
