"""Server-Sent Events from ready bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import ClassVar

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from gateway.generation.relay.interface import StreamOutput
from gateway.generation.relay.text_events import one_line
from gateway.http.access_log import record_of
from gateway.http.client_connection import CancelOnDisconnect, ClientDisconnectedError, connection_of

_USUAL = {"Cache-Control": "no-cache"}
COMMENT = ServerSentEvent(comment="waiting", sep="\n").encode()
"""An event stream comment: clients skip it, proxies see a living connection."""


class EventStream(EventSourceResponse):
    """Sends the bytes of a generator, one write for each, and closes the generator when the client leaves.

    It replaces the tasks by which its base serves a connection: they would cost half as much as the rest of a request
    (benchmarks/notes.md). The base sends its headers before the generator has run, comments at fixed times, and leaves
    by repeated cancellation, which cuts off the clean-up that tells an engine to stop. This class sends the headers
    with the first bytes, so that an error before them keeps its true status, leaves comments to the generator, which
    knows what silence is, and cancels once.

    Where the request's record has an error at the end, the connection is closed: a client must not take a broken
    response for a whole one. A client of HTTP/1.0, which knows no bodies of unknown length, gets all events together.
    """

    body_iterator: AsyncGenerator[bytes, None]
    _usual_headers: ClassVar[list[tuple[bytes, bytes]]] = []  # once they are known

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        output: StreamOutput | None = None,
    ) -> None:
        """Respond with 200 and ``events``.

        Args:
            events: complete events or comments, ready to send. An exception before the first is the caller's to turn
                into a response; afterwards none may leave it.
            headers: further response headers.
            output: shared with the generator of the events.
        """
        self._output = output or StreamOutput()
        self._begun = False
        usual = not headers or headers == _USUAL
        if usual and self._usual_headers:  # ``_send`` needs no more; the base's constructor is slow
            self.body_iterator, self.status_code = events, 200
            self.raw_headers = self._usual_headers.copy()
            return
        super().__init__(events, headers={**_USUAL, **(headers or {})}, ping=0, sep="\n")
        del self.headers["connection"]  # HTTP/1.1 keeps it alive unasked, and the server says where it does not
        if usual:
            EventStream._usual_headers = self.raw_headers.copy()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the connection."""
        record, connection, output = record_of(scope), connection_of(scope), self._output
        try:
            with CancelOnDisconnect(connection, receive):
                if scope.get("http_version") == "1.0":
                    await self._send_whole(send)
                    return
                async with aclosing(self.body_iterator) as events:
                    async for data in events:
                        if not self._begun:
                            self._begun = True
                            start = {"type": "http.response.start", "status": self.status_code}
                            await send({**start, "headers": self.raw_headers})
                        body = data if data.isascii() else one_line(data)
                        # The last events go before the generator has cleaned up, which may take longer.
                        await send({"type": "http.response.body", "body": body, "more_body": not output.ending})
                        if output.ending:
                            break
                        if connection is not None:
                            output.write = connection.write_chunk
                if not output.ending:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ClientDisconnectedError:
            record.disconnected = True
        finally:
            if record.error is not None and connection is not None:
                connection.close_soon()

    async def _send_whole(self, send: Send) -> None:
        async with aclosing(self.body_iterator) as events:
            body = b"".join([one_line(data) async for data in events])
        headers = [*self.raw_headers, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": body})
