"""Server-Sent Events as ready bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.web.disconnect import ClientDisconnectedError, while_connected
from gateway.web.http_protocol import chunk_writer, close_connection, join_next_writes
from gateway.web.record import record_of

COMMENT = b": waiting\n\n"
"""An event stream comment: clients skip it, proxies see a living connection."""


_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


class EventStream(Response):
    """Sends what a generator of ready bytes yields, one write for each, and closes it when the client leaves.

    ``sse-starlette`` sends its response headers before the generator has run, comments at fixed times instead of after
    silence, and leaves by repeated cancellation, which cuts off the clean-up that tells an engine to stop. This class
    sends the headers with the first bytes, so that an error before them keeps its true status, leaves comments to
    the generator, which knows what silence is, and cancels once.

    Where the request's record has an error at the end, the connection is closed. A client of HTTP/1.0, which knows no
    answers of unknown length, gets all events at once.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None) -> None:
        """Answer 200 with ``events``.

        Args:
            events: complete events or comments, ready to send. An exception before the first is the caller's to turn
                into an answer; afterwards none may leave it.
            headers: further response headers.
        """
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the connection."""
        try:
            work = self._send_whole(send) if _has_no_chunks(scope) else self._send(scope, send)
            await while_connected(scope, receive, work)
        except ClientDisconnectedError:
            record_of(scope).disconnected = True
        if record_of(scope).error is not None:
            close_connection(scope)  # nobody can take a broken answer for a whole one

    async def _send_whole(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            body = b"".join([one_line(data) async for data in events])
        headers = [*self.raw_headers, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _send(self, scope: Scope, send: Send) -> None:
        record = record_of(scope)
        begun = False
        async with aclosing(self._events) as events:
            async for data in events:
                if not begun:
                    begun = True
                    join_next_writes(scope)
                    await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                if record.ending:  # before the generator has cleaned up, which may take longer
                    await send({"type": "http.response.body", "body": one_line(data), "more_body": False})
                    return
                await send({"type": "http.response.body", "body": one_line(data), "more_body": True})
                record.write = chunk_writer(scope)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _has_no_chunks(scope: Scope) -> bool:
    return bool(scope.get("http_version") == "1.0")


def one_line(data: bytes) -> bytes:
    """Events whose JSON has no character that some clients take for the end of a line (U+0085, U+2028, U+2029)."""
    if b"\xe2\x80" in data or b"\xc2\x85" in data:
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return data
