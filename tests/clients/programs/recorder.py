"""A proxy in front of the gateway that keeps what a program sent, and refuses whatever leads elsewhere."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from tests.handler_server import HandlerServer

_OF_THE_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "host"})


@dataclass(frozen=True)
class Exchange:
    """One request as the program sent it, and its answer.

    Attributes:
        path: with its query.
        headers: with names in lower case.
        body: what was sent, parsed; empty without a body.
        status: of the answer.
        left_out: what its header ``x-ignored-parameters`` names.
        answer: its whole text.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    status: int
    left_out: list[str]
    answer: str


@dataclass
class Recorder:
    """The proxy; a context manager.

    Attributes:
        target: the gateway's URL.
        url: its own.
        exchanges: in the order in which they ended.
        elsewhere: hosts and URLs that were asked for through it as a proxy, all of them refused.
        after: called after each exchange, before its last byte is sent.
    """

    target: str
    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    after: Callable[[Exchange], None] | None = None

    def __enter__(self) -> Recorder:
        self._server = HandlerServer(_handler(self)).__enter__()
        self.url = self._server.url
        return self

    def __exit__(self, *ended: object) -> None:
        self._server.__exit__(*ended)

    def posts(self, path: str | None = None) -> list[Exchange]:
        """The POST requests, of one path (without its query) or of all."""
        posts = [exchange for exchange in self.exchanges if exchange.method == "POST"]
        return [exchange for exchange in posts if path is None or urlsplit(exchange.path).path == path]


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    host = urlsplit(recorder.target).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            if not self.path.startswith("/"):
                self._reject()
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            upstream = http.client.HTTPConnection(host, timeout=120)
            kept = {name: value for name, value in headers.items() if name not in _OF_THE_CONNECTION}
            upstream.request(self.command, self.path, body, kept)
            answer = upstream.getresponse()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_THE_CONNECTION | {"content-length"}:
                    self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            said = b""
            while piece := answer.read1(65536):
                said += piece
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            upstream.close()
            sent = json.loads(body) if body else {}
            left_out = [name for name in answer.getheader("x-ignored-parameters", "").split(", ") if name]
            exchange = Exchange(self.command, self.path, headers, sent, answer.status, left_out, said.decode())
            recorder.exchanges.append(exchange)
            if recorder.after is not None:
                recorder.after(exchange)
            self.wfile.write(b"0\r\n\r\n")

        def _reject(self) -> None:
            recorder.elsewhere.append(self.path)
            self.send_error(403)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - names of the base class
        do_CONNECT = _reject  # noqa: N815

    return Handler
