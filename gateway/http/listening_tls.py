"""TLS on the listening side: contexts made from files, and the handshakes of new connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence, Sized
from typing import Final

from gateway.http.certificates import (
    CertificateError,
    CertificateFiles,
    FileBackedValue,
    expiry_of,
    load_authorities,
    load_pair,
)
from gateway.http.http_protocol import MOST_REJECTED, SPARE_FILES, HttpLimits, leave_spare_file, take_spare_file
from gateway.settings.tls_settings import ServerTlsSettings
from gateway.telemetry.cooldown import Cooldown

_log = logging.getLogger(__name__)
_HANDSHAKE_S: Final = 10.0
_PAUSE_S: Final = 1.0  # where the process may open no more files
_AT_ONCE: Final = 8  # in a turn of the loop: more would delay the tokens of running streams
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MODES: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_REASONS: Final = {
    "HTTP_REQUEST": "it sent plain HTTP",
    "WRONG_VERSION_NUMBER": "it did not use TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate",
    "UNSUPPORTED_PROTOCOL": "its TLS versions are older than server.tls.minimum_version",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the gateway's certificate",
}


def listening_contexts(settings: ServerTlsSettings) -> FileBackedValue[ssl.SSLContext]:
    """Make the TLS context of new connections, and a new one whenever the files change.

    A context that took further files would go on to trust authorities that were removed from the files, and to
    resume sessions that these authorities let in.

    Raises:
        CertificateError: the files cannot be used.
    """
    files = CertificateFiles(settings.certificate, settings.key, settings.client_ca)
    return FileBackedValue(files, lambda: _context(settings), "server.tls")


def _context(settings: ServerTlsSettings) -> ssl.SSLContext:
    """Make one.

    Raises:
        CertificateError: the files cannot be used.
    """
    expiry_of(settings.certificate, settings.key, client=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    load_pair(context, settings.certificate, settings.key)
    if settings.client_ca is not None:
        load_authorities(context, settings.client_ca)
        context.verify_mode = _MODES[settings.client_certificates]
        if not context.get_ca_certs():
            raise CertificateError(f"{settings.client_ca} contains no CA certificates")
    return context


class TlsAcceptor:
    """Accepts connections, each with the TLS context that is current.

    The event loop's own servers keep one context, and do not count connections in their handshake.

    Args:
        sockets: the listening sockets.
        contexts: TLS contexts of new connections.
        http: makes uvicorn's protocol.
        connections: uvicorn's connections.
        bounds: bounds of connections; those in their handshake count.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        contexts: FileBackedValue[ssl.SSLContext],
        http: Callable[[], asyncio.Protocol],
        connections: Sized,
        bounds: HttpLimits,
    ) -> None:
        self._sockets = list(sockets)
        self._contexts = contexts
        self._http = http
        self._connections = connections
        self._most = bounds.connections + MOST_REJECTED  # of which uvicorn's protocol rejects some in words
        self._handshake_s = min(_HANDSHAKE_S, bounds.head_s)
        self._first_spare = bounds.files - SPARE_FILES
        self._handshakes: set[asyncio.Task[None]] = set()
        self._says = Cooldown(10.0)
        self._unsaid = 0

    def open(self) -> None:
        """Accept connections from now on."""
        for each in self._sockets:
            each.setblocking(False)
            asyncio.get_running_loop().add_reader(each, self._accept, each)

    def close(self) -> None:
        """Accept no more connections, and end handshakes; the sockets stay open."""
        for each in self._sockets:
            asyncio.get_running_loop().remove_reader(each)
        self._sockets.clear()
        for task in self._handshakes:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                connected, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more files, mostly
                _log.error(
                    "connections cannot be accepted: %s", error.strerror, extra={"event": "connection_not_taken"}
                )
                loop.remove_reader(listening)
                loop.call_later(_PAUSE_S, self._resume, listening)
                return
            if len(self._handshakes) + len(self._connections) >= self._most:
                connected.close()
                continue
            connected.setblocking(False)
            task = loop.create_task(self._shake_hands(connected))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
            if connected.fileno() >= self._first_spare:
                take_spare_file(task, task.cancel)
                task.add_done_callback(leave_spare_file)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def _shake_hands(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            client = connected.getpeername()[0]
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                self._http, connected, ssl=self._contexts.value, ssl_handshake_timeout=self._handshake_s
            )
        except OSError as error:
            connected.close()
            self._tell(error, client)

    def _tell(self, error: OSError, client: str) -> None:
        """Log a TLS handshake that failed, of many in a row only some."""
        if not self._says.due():
            self._unsaid += 1
            return
        reason = _REASONS.get(getattr(error, "reason", None) or "") or str(error) or type(error).__name__
        _log.info(
            "TLS handshake with a client failed: %s",
            reason,
            extra={"event": "tls_handshake_failed", "client": client, "unsaid": self._unsaid},
        )
        self._unsaid = 0
