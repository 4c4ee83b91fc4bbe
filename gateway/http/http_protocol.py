"""uvicorn's HTTP protocol with bounds on requests and connections, in size and in time."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.generation.relay.chunked_writer import ChunkedWriter
from gateway.http.access_log import record_of
from gateway.http.client_connection import EXTENSION, ClientConnection
from gateway.http.shutdown import ShutdownState
from gateway.telemetry.cooldown import Cooldown

_log = logging.getLogger(__name__)

HEAD_LIMIT = 2**16  # bytes of a request line and its headers, and of what surrounds a piece of a body
_HEAD_ABORT = 2**18  # where an unfinished head is rejected: parsing one costs the square of its length
_PIPELINED = 64  # requests that wait for their turn on one connection; each takes some kilobytes
MOST_REJECTED = 64  # connections at a time beyond the bound that get a response; further ones are cut off
_TELL_S = 1.0  # how long such a connection may stay silent before it is closed
_LEAST_READ = 2**14  # bytes that it must read in that time
_LINGER_S = 1.0
_UPGRADE = re.compile(rb"(?i)\r\nupgrade:")
_LARGE_HEAD = f"The request line and headers are larger than the limit of {HEAD_LIMIT // 1024} KiB."
_LARGE_TAIL = f"The trailers or a chunk header of the request are larger than the limit of {HEAD_LIMIT // 1024} KiB."
_OTHER_PROTOCOL = "This server only supports HTTP/1.1; send the request without 'Upgrade' and without 'CONNECT'."
_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_NO_ROOM = "The gateway has reached its limit of connections (limits.max_connections); try again in a moment."
_NO_FILES = "The gateway has reached its limit of open files; try again in a moment."
# Descriptors of the highest numbers, for connections that get an error or are a liveness probe's. Half of them may be
# held. The others are for those that come in a turn of the loop, of which there are eight, and are closed in the next.
SPARE_FILES = 32
_on_spare_files: OrderedDict[object, Callable[[], object]] = OrderedDict()  # of all servers here, the oldest first
_LIVE = "/health/live"


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on the time of a client's request, and on the number of clients.

    The time of a body grows with what has come of it, as in Apache's ``mod_reqtimeout``: a large one on a slow line is
    served, and one that trickles is not.

    Attributes:
        head_s: seconds from the first byte of a request, or from the connection, to the end of its headers.
        body_s: seconds from the first byte of a request to its end, in addition to those that its size allows.
        body_rate: bytes of a body that allow one second more.
        silence_s: seconds between two pieces of a body.
        unread_s: seconds in which a client must read some of a response that it has let pile up; else it is cut off.
        connections: most open connections.
        files: most open files of the process; the kernel gives the lowest free number to each.
    """

    head_s: float = 60.0
    body_s: float = 60.0
    body_rate: int = 4096
    silence_s: float = 60.0
    unread_s: float = 60.0
    connections: int = 16384
    files: int = 2**31

    @property
    def shortest_s(self) -> float:
        """The shortest of the times, which is the interval of the checks."""
        return min(self.head_s, self.body_s, self.silence_s)


Reject = Callable[[int, str, Scope], Response]
"""Makes the response to a request that no application sees, of a status, a sentence and a scope.

The scope has ``path`` and ``headers`` as far as they have come: an empty path where it is not known.
"""


def http_protocol(
    reject: Reject,
    bounds: HttpLimits | None = None,
    shutdown_state: ShutdownState | None = None,
    rejected: Callable[[str], object] = str,
) -> type[HttpToolsProtocol]:
    """Make a protocol for `uvicorn.Config`.

    Args:
        reject: responds to requests that no application sees.
        bounds: bounds of connections and requests; None for the defaults.
        shutdown_state: once it has begun, connections end with their responses.
        rejected: called for each connection that is rejected, with the reason: ``connections`` or ``files``.

    Returns:
        uvicorn's protocol with these bounds, and with a ``ClientConnection`` for its application.
    """

    class HttpProtocol(_BoundedProtocol):
        _error = staticmethod(reject)
        _bounds = bounds or HttpLimits()
        _shutdown_state = shutdown_state or ShutdownState()
        _overflow = _Overflow(rejected)

    return HttpProtocol


class _Overflow:
    """Connections of one server beyond the bound on them.

    Attributes:
        rejecting: connections that will be rejected with an error.
        warnings: by reason, when the log is written to.
        rejected: counts connections by reason.
    """

    def __init__(self, rejected: Callable[[str], object]) -> None:
        self.rejecting: set[_BoundedProtocol] = set()
        self.warnings = {reason: Cooldown(60.0) for reason in ("connections", "files")}
        self.rejected = rejected


class _Dropped(list[tuple[bytes, bytes]]):
    """Trailers: an application must not take them for headers, and they take no memory."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Forget one."""


_DROPPED = _Dropped()


class _BoundedProtocol(HttpToolsProtocol):
    _error: Reject
    _bounds: HttpLimits
    _shutdown_state: ShutdownState
    _overflow: _Overflow
    _no_room = _NO_ROOM

    _head = 0  # bytes that have come since the request began, at least those of its head
    _body = 0  # bytes of its body that have come
    _tail = 0  # bytes that have come since the last of its body: a chunk's size, or trailers
    _received = 0  # bytes of the piece that is being parsed
    _in_head = True
    _whole = False  # the request that came last
    _open = 0  # requests whose responses are being sent or awaited
    _begun = 0.0  # when the request began, by the loop's clock
    _heard = 0.0  # when something came
    _unread: asyncio.TimerHandle | None = None  # while the client does not read
    _timer: asyncio.TimerHandle | None = None  # one for the connection, which checks now and then what is overdue
    _status, _message = 400, "The request is not valid HTTP/1.1."
    _refusal: bytes | None = None  # the connection ends with it, after the responses before it; nothing more is read
    _refusal_written = False
    _closes = False  # with the next response, or after a moment without one

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._connection = ClientConnection(transport)
        super().connection_made(cast("asyncio.Transport", self._connection))
        self._connection.write_chunk = ChunkedWriter(self.flow, transport).write
        self._connection.close_soon = self._close_soon
        file = transport.get_extra_info("socket")
        if file is not None and file.fileno() >= self._bounds.files - SPARE_FILES:
            take_spare_file(self, transport.abort)
            self._no_room = _NO_FILES
            self._reject_connection()
        elif len(self.connections) - len(self._overflow.rejecting) > self._bounds.connections:
            self._reject_connection()
        else:
            self._begun = self.loop.time()
            self._watch_time()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        self._overflow.rejecting.discard(self)
        leave_spare_file(self)
        super().connection_lost(exc)
        self._connection.end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def _expect_reading(self) -> None:
        """Cut the client off unless it has read enough after a while: its response holds a slot of the engine."""
        transport = self._connection.transport
        size = transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self._bounds.unread_s, self._check_reading, size)

    def _check_reading(self, before: int) -> None:
        transport = self._connection.transport
        unread = transport.get_write_buffer_size()
        if before - unread >= _LEAST_READ:
            self._expect_reading()
            return
        client = self.client[0] if self.client else None
        about: dict[str, Any] = {"event": "client_cut_off", "client": client, "unread": unread}
        if not self.pipeline:  # a pipelined response is of an earlier cycle, which uvicorn does not name
            about["request_id"] = record_of(cast("Scope", self.cycle.scope)).request_id
        _log.warning("the connection of a client that does not read its response is closed", extra=about)
        transport.abort()

    def data_received(self, data: bytes) -> None:
        if self in self._overflow.rejecting and self._refusal is None and not self._closes:
            scope = _peeked(data)
            # A restart by a liveness probe would end the responses of all others.
            self._closes = self._no_room is _NO_FILES and scope["path"] == _LIVE
            self._refusal = None if self._closes else self._answer(503, self._no_room, scope)
        if self._refusal is not None:
            if not self._open:
                self._write_refusal()
            return
        if self._whole or not self._head:
            data = data.lstrip(b"\r\n")  # an empty line between requests is none of them, and no sign of life
            if not data:
                return
        if (self._in_head or self._whole) and _UPGRADE.search(data):
            data = _hide_upgrade(data)
        self._received = len(data)
        self._heard = self.loop.time()
        if self._in_head:
            self._head += len(data)
        else:
            self._tail += len(data)
        super().data_received(data)
        if not self._whole:
            self._check_size()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)["extensions"] = {EXTENSION: self._connection}
        if not self._in_head:  # a further request of this connection
            self._in_head, self._head = True, self._received
        self._whole = False
        self._begun = self.loop.time()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._body = self._tail = 0
        self._check_head()
        super().on_headers_complete()
        self.headers = _DROPPED
        if self.cycle is not None and self.cycle.scope is self.scope:
            self._open += 1
            self.cycle.keep_alive = self.cycle.keep_alive and not self._closes and not self._shutdown_state.begun

    def on_body(self, body: bytes) -> None:
        self._tail = 0
        self._body += len(body)
        if not self.cycle.response_complete:
            self.cycle.body += body
            if len(self.cycle.body) > HIGH_WATER_LIMIT:  # for less the application is not woken before the end
                self.flow.pause_reading()
                self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()
        # uvicorn stops reading in the middle of a large body, and goes on when the application asks for more. Without
        # reading, the end of the connection is not seen.
        if not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        self._open -= 1
        super().on_response_complete()
        if self._refusal is not None and not self._open:
            self._write_refusal()
        elif not self._whole:  # an early response; or the next request, whose time was not its own so far
            self._begun = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        del msg
        self._reject(self._status, self._message)

    def _check_head(self) -> None:
        """Reject a request by its headers, where its host or its end is ambiguous.

        Raises:
            ValueError: the request is rejected; this ends the parsing.
        """
        if self.parser.should_upgrade():  # else the parser would read the body as another request
            self._stop_parsing(400, _OTHER_PROTOCOL)
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            self._stop_parsing(400, f"A request must have exactly one 'Host' header, but this request has {hosts}.")
        if b"transfer-encoding" in names:
            codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
            if codings != [b"chunked"]:
                self._stop_parsing(400, "Unsupported 'Transfer-Encoding': only 'chunked' is accepted.")
        if self._head > HEAD_LIMIT and self._head_size() > HEAD_LIMIT:  # a body may be in the first
            self._stop_parsing(431, _LARGE_HEAD)
        if len(self.pipeline) >= _PIPELINED:  # the response to the one before it tells the client to ask anew
            self.pipeline[0][0].keep_alive = False
            self._refusal = b""
            raise ValueError

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _stop_parsing(self, status: int, message: str) -> NoReturn:
        self._status, self._message = status, message
        raise ValueError(message)  # the parser's owner calls send_400_response

    def _reject(self, status: int, message: str) -> None:
        """Reject the request that is being read, and end the connection after the responses to earlier requests."""
        if self._refusal is not None:
            return
        self._refusal = self._answer(status, message, self._open_scope())
        if not self._whole and self.cycle is not None and self.cycle.scope is self.scope:  # it is in its body
            if self.pipeline and self.pipeline[0][0] is self.cycle:
                self.pipeline.popleft()
                self._open -= 1
            elif self.cycle.response_started:
                self.transport.close()
            else:
                self.cycle.disconnected = True  # the application, which waits for the rest of the body, must end
                self.cycle.message_event.set()
                self._write_refusal()
        elif not self._open:
            self._write_refusal()

    def _open_scope(self) -> Scope:
        """The scope of the request that is being read; with an empty path before its head is complete."""
        if self._whole or self.scope is None:
            return {"type": "http", "path": "", "headers": []}
        return {"type": "http", "path": _path_of(self.url), "headers": self.scope["headers"]}

    def _answer(self, status: int, message: str, scope: Scope) -> bytes:
        answer = self._error(status, message, scope)
        lines = [b"HTTP/1.1 %d %b" % (answer.status_code, _PHRASES.get(answer.status_code, "Refused").encode())]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        lines += [b"retry-after: 1"] * (status == 503)
        return b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)])

    def _write_refusal(self) -> None:
        """Write the rejection, and close the connection when its client has had the time to read it.

        A client that is still sending would have the connection reset under it, and lose what it has not read.
        """
        if self._refusal is None or self._refusal_written:
            return
        self._refusal_written = True
        if self._refusal:
            self.transport.write(self._refusal)
            if self.transport.can_write_eof():  # by TLS it cannot
                self.transport.write_eof()
        self.flow.pause_reading()
        if self._timer is not None:
            self._timer.cancel()
        linger_s = _LINGER_S if self._refusal and self._no_room is _NO_ROOM else 0  # its descriptor is needed
        self._timer = self.loop.call_later(linger_s, self.transport.close)

    def _reject_connection(self) -> None:
        """Tell a client that there are too many, once it has sent something: before that some do not read."""
        reason = "files" if self._no_room is _NO_FILES else "connections"
        self._overflow.rejected(reason)
        if self._overflow.warnings[reason].due():
            if self._no_room is _NO_FILES:
                _log.warning(
                    "the limit of %d open files is reached; further connections are rejected with 503",
                    self._bounds.files,
                    extra={"event": "files_full"},
                )
            else:
                _log.warning(
                    "%d connections are open; further connections are rejected with 503",
                    self._bounds.connections,
                    extra={"event": "connections_full"},
                )
        if self._no_room is _NO_ROOM and len(self._overflow.rejecting) >= MOST_REJECTED:
            self.connections.discard(self)
            self._connection.transport.abort()
            return
        self._overflow.rejecting.add(self)
        self._timer = self.loop.call_later(_TELL_S, self.transport.close)

    def _close_soon(self) -> None:
        self._closes = True
        self.loop.call_later(_LINGER_S, self._close_idle)

    def _close_idle(self) -> None:
        if self._whole and self.cycle is not None and self.cycle.response_complete:
            self.transport.close()

    def _check_size(self) -> None:
        if self._in_head and self._head > _HEAD_ABORT:
            self._reject(431, _LARGE_HEAD)
        elif not self._in_head and self._tail > HEAD_LIMIT:
            self._reject(431, _LARGE_TAIL)
        elif self._timer is None:
            self._watch_time()

    def _watch_time(self, seconds: float = math.inf) -> None:
        self._timer = self.loop.call_later(min(seconds, self._bounds.shortest_s), self._check_time)

    def _check_time(self) -> None:
        """End a request that takes too long to arrive, and the connection with it."""
        self._timer = None
        if self._whole or self._refusal is not None or self.transport.is_closing():
            return
        now = self.loop.time()
        if self._open and (self._in_head or self.pipeline or self.flow.read_paused):
            self._begun = self._heard = now  # an earlier response is running, or the gateway itself does not read
        due, reason = self._deadline()
        if now < due:
            self._watch_time(due - now)
        elif self._head:
            self._reject(408, reason)
        else:  # nothing has come
            self.transport.close()

    def _deadline(self) -> tuple[float, str]:
        """Return when the rest of the request is overdue, and the message for its client."""
        bounds = self._bounds
        if self._in_head:
            return (
                self._begun + bounds.head_s,
                f"The request line and headers were not complete after {bounds.head_s:g} seconds.",
            )
        allowed = self._body / bounds.body_rate if self._open else 0  # what follows an early response is dropped
        return min(
            (
                self._heard + bounds.silence_s,
                f"The request was not complete after {bounds.silence_s:g} seconds of silence.",
            ),
            (
                self._begun + bounds.body_s + allowed,
                (
                    f"The request was not complete after {bounds.body_s:g} seconds and arrived at less than "
                    f"{bounds.body_rate} bytes per second."
                ),
            ),
        )


def take_spare_file(holder: object, abort: Callable[[], object]) -> None:
    """Register a user of a spare file descriptor, and abort the oldest one where there are too many."""
    if len(_on_spare_files) >= SPARE_FILES // 2:
        _, abort_oldest = _on_spare_files.popitem(last=False)
        abort_oldest()
    _on_spare_files[holder] = abort


def leave_spare_file(holder: object) -> None:
    """Unregister a user of a spare file descriptor."""
    _on_spare_files.pop(holder, None)


def _path_of(url: bytes) -> str:
    return unquote(url.partition(b"?")[0].decode("latin-1"))


def _peeked(data: bytes) -> Scope:
    """Read the first bytes of a connection's request, without a parser."""
    line, *lines = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    _, _, rest = line.partition(b" ")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (each.partition(b":") for each in lines)]
    return {"type": "http", "path": _path_of(rest.partition(b" ")[0]), "headers": headers}


def _hide_upgrade(data: bytes) -> bytes:
    """Hide the offer of another protocol, as Java's HTTP client makes (h2c) with each request.

    The parser takes such a request for one without a body, so the offer is renamed before the parser sees it; one that
    comes in two pieces, or behind another request, is rejected later. The new name is as long as the old one: where the
    end of the head comes in two pieces, what is renamed may be in the body, whose length must stay.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        end = len(data)
    return _UPGRADE.sub(b"\r\nignored:", data[:end]) + data[end:]
