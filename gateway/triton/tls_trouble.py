"""Finds out whether TLS is why Triton cannot be reached, by trying; in operators' words."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import anyio

from gateway.http.certificates import FileBackedValue
from gateway.triton.access import Credentials, TritonAccess

_TIMEOUT_S = 2.0
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_SPEAKS_OTHERWISE = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF")
_ASKS_FOR_ONE = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
_REJECTS = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN", "DECRYPT_ERROR")


async def tls_trouble(url: str, access: TritonAccess) -> str | None:
    """Find out whether TLS is why a server cannot be reached.

    Args:
        url: its address, ``host:port``.
        access: access to the server.

    Returns:
        One sentence, without its full stop; None where TLS is not the reason, or the address is not ``host:port``.
    """
    host, _, port = url.removeprefix("grpc://").rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or "/" in host:
        return None
    try:
        with anyio.fail_after(_TIMEOUT_S):
            return await _ask(host, int(port), url, access)
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        return None


async def _ask(host: str, port: int, url: str, access: TritonAccess) -> str | None:
    tls = access.tls
    if tls is None:
        async with _connected(host, port, _anything(), host):
            return f"Triton at {url} requires TLS, but the gateway does not use TLS: set triton.tls (with ca, or {{}})"
    name = access.server_name or host
    try:
        async with _connected(host, port, tls.value.h2, name) as (reader, writer):
            if writer.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
                return (
                    f"The server at {url} supports TLS, but not HTTP/2 over TLS (ALPN): check that it is Triton's "
                    "gRPC port"
                )
            # A rejected client certificate shows after the handshake: gRPC's server closes the connection silently.
            return None if await reader.read(1) else _no_certificate(tls, url)
    except ssl.SSLCertVerificationError as error:
        return _distrust(error, url, name)
    except ssl.SSLError as error:
        return _refusal(error, url, tls)


@contextlib.asynccontextmanager
async def _connected(
    host: str, port: int, context: ssl.SSLContext, name: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _no_certificate(tls: FileBackedValue[Credentials], url: str) -> str:
    if tls.value.shows_certificate:
        return f"Triton at {url} does not accept the gateway's certificate (triton.tls.certificate)"
    return f"Triton at {url} requires a client certificate: set triton.tls.certificate and triton.tls.key"


def _anything() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def _distrust(error: ssl.SSLCertVerificationError, url: str, name: str) -> str:
    if error.verify_code == _EXPIRED:
        return f"The certificate of Triton at {url} has expired"
    if error.verify_code in _OTHER_NAME:
        return (
            f"The certificate of Triton at {url} is not for {name}: set triton.tls.server_name to a name in the "
            "certificate"
        )
    return f"The certificate of Triton at {url} is not trusted ({error.verify_message}): set triton.tls.ca"


def _refusal(error: ssl.SSLError, url: str, tls: FileBackedValue[Credentials]) -> str:
    reason = error.reason or ""
    if reason.startswith(_SPEAKS_OTHERWISE):
        return f"Triton at {url} does not use TLS: remove triton.tls, or start Triton with --grpc-use-ssl"
    if reason in _ASKS_FOR_ONE or reason.endswith(_REJECTS):
        return _no_certificate(tls, url)
    return f"TLS handshake with Triton at {url} failed: {reason.replace('_', ' ').lower() or error}"
