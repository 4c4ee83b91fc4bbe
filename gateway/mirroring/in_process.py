"""Requests to an application in this process, without a connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from gateway.judging.answer_forms import LONGEST_ANSWER, Answer, Failure, Outcome, outcome_of

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
Application = Callable[[_Message, _Receive, _Send], Awaitable[None]]

_HEADERS: Final = [(b"host", b"localhost"), (b"content-type", b"application/json")]


class InProcess:
    """Asks an ASGI application.

    Args:
        app: the application, started.
        comment: an event of its streams that says nothing.
    """

    def __init__(self, app: Application, comment: bytes) -> None:
        self._app = app
        self._comment = comment

    async def ask(self, path: str, body: bytes, timeout_s: float) -> Outcome:
        """Ask for an answer; whatever goes wrong is an outcome too.

        Args:
            path: of the endpoint.
            body: of the request.
            timeout_s: seconds for all of it.
        """
        call = _Call(body, self._comment)
        began = time.perf_counter()
        task = asyncio.ensure_future(self._app(_scope(path, len(body)), call.receive, call.send))
        try:
            done, _ = await asyncio.wait((task,), timeout=timeout_s)
        finally:
            call.left.set()
            task.cancel()
        if not done:
            await asyncio.wait((task,))
            return Failure("timeout")
        if not task.cancelled():
            task.exception()  # a defect, which has been logged and answered
        if call.size > LONGEST_ANSWER:
            return Failure("an answer of more than 16 MiB")
        if not call.ended:
            return Failure("connection lost")
        outcome = outcome_of(path, call.status, b"".join(call.parts), streamed=call.streamed)
        if isinstance(outcome, Answer):
            outcome.first_s = None if call.first is None or not call.streamed else call.first - began
            outcome.whole_s = call.last - began
        return outcome


class _Call:
    """One request: its channel to the application, and what came by it."""

    def __init__(self, body: bytes, comment: bytes) -> None:
        self.status = 0
        self.streamed = self.ended = False
        self.parts: list[bytes] = []
        self.size = 0
        self.first: float | None = None
        self.last = 0.0
        self.left = asyncio.Event()
        self._body: bytes | None = body
        self._comment = comment

    async def receive(self) -> _Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.streamed = dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream")
            return
        data = message.get("body", b"")
        self.last = time.perf_counter()
        if data and data != self._comment and self.first is None:
            self.first = self.last
        self.size += len(data)
        if self.size <= LONGEST_ANSWER:
            self.parts.append(data)
        self.ended = not message.get("more_body", False)


def _scope(path: str, size: int) -> _Message:
    headers = [*_HEADERS, (b"content-length", b"%d" % size)]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": headers,
        "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 0),
    }  # fmt: skip
