"""A server that is not ours: it speaks as much of OpenAI's API as a test says, and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.handler_server import HandlerServer


@dataclass(frozen=True)
class Said:
    """An answer: an object, sent as JSON, or bytes, sent as they are."""

    body: Any
    status: int = 200
    kind: str = "application/json"
    hangs: bool = False  # the connection stays open behind it until the server is closed


@dataclass
class OtherServer(HandlerServer):
    """Answers each POST by a function of its path and body, and lists models and tokens where it has some."""

    answer: Callable[[str, dict[str, Any]], Said]
    models: list[str] | None = field(default_factory=lambda: ["m"])
    tokens: list[int] | None = None
    context: int | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self._handler())
        self.http.daemon_threads = False  # closing waits for them

    def _get(self, path: str) -> Said:
        if path == "/v1/models" and self.models is not None:
            listed = [{"id": name, "object": "model", "max_model_len": self.context} for name in self.models]
            return Said({"object": "list", "data": listed})
        return Said({"detail": "Not Found"}, 404)

    def _post(self, path: str, body: dict[str, Any]) -> Said:
        if path == "/tokenize":
            return Said({"detail": "Not Found"}, 404) if self.tokens is None else Said({"tokens": self.tokens})
        self.asked.append(body)
        return self.answer(path, body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(server._get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(server._post(self.path, body))

            def _send(self, said: Said) -> None:
                server.keys.append(self.headers.get("Authorization"))
                data = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
                self.send_response(said.status)
                self.send_header("Content-Type", said.kind)
                self.end_headers()
                try:
                    self.wfile.write(data)
                    self.wfile.flush()
                except ConnectionError:
                    return  # the client has had enough
                if said.hangs:
                    server.closing.wait(30)

        return Handler


def chat(text: str, finish: str = "stop", usage: dict[str, int] | None = None) -> Said:
    """A whole answer of chat."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return Said({"object": "chat.completion", "choices": [choice], "usage": usage})


def stream(*events: Any, end: bytes = b"data: [DONE]\n\n") -> Said:
    """A stream of events."""
    return Said(
        b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + end, kind="text/event-stream"
    )
