"""Errors of Anthropic's paths that the HTTP protocol answers, because no application sees the request."""

from __future__ import annotations

import contextlib
import json

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.app import unread_answer
from gateway.http.http_protocol import HttpLimits, http_protocol
from tests.web.served import answer_to, served

SHORT = HttpLimits(head_s=0.2, body_s=0.2, silence_s=0.2)
LONG = HttpLimits(head_s=60, body_s=60, silence_s=60)  # for what is refused by what it says
POST = b"POST /v1/messages?beta=true HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a whole request."""
    with contextlib.suppress(ClientDisconnect):
        await Request(scope, receive).body()
        await Response(b"read")(scope, receive, send)


async def answered(sent: bytes, bounds: HttpLimits = LONG) -> tuple[int, dict[str, str], dict[str, object]]:
    """Status, headers and JSON of all that comes until the server closes the connection."""
    async with served(app, http_protocol(unread_answer, bounds), timeout_keep_alive=30) as port:
        told = await answer_to(port, sent)
    head, _, body = told.rpartition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert int(headers["content-length"]) == len(body)
    return int(status.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (POST, 408, "invalid_request_error"),
        (POST + b"content-length: 9\r\n\r\n", 408, "invalid_request_error"),
        (POST + b"x: %b\r\n\r\n" % (b"y" * 2**16), 431, "invalid_request_error"),
        (POST + b"x: %b" % (b"y" * 2**18), 431, "invalid_request_error"),
        (CHUNKED + b"no number\r\n", 400, "invalid_request_error"),
        (POST + b"host: x\r\n\r\n", 400, "invalid_request_error"),
        (POST.replace(b"messages", b"messages/count_tokens"), 408, "invalid_request_error"),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nanthropic-version: 1\r\nx: y\r\n", 408, "invalid_request_error"),
    ],
    ids=["head", "body", "large head", "endless head", "chunk", "hosts", "count_tokens", "version"],
)
async def test_it_has_their_shape(sent: bytes, status: int, kind: str) -> None:
    got, headers, body = await answered(sent, SHORT if status == 408 else LONG)
    assert (got, body["type"], headers["connection"]) == (status, "error", "close")
    assert body["error"] == {"type": kind, "message": body["error"]["message"]}  # type: ignore[index]
    assert headers["request-id"] == headers["x-request-id"] == body["request_id"] != ""


async def test_too_many_connections_are_overload() -> None:
    sent = POST + b"content-length: 0\r\n\r\n"
    status, headers, body = await answered(sent, HttpLimits(connections=0))
    assert (status, headers["retry-after"], body["error"]["type"]) == (529, "1", "overloaded_error")  # type: ignore[index]
    assert headers["request-id"] == body["request_id"]
    status, headers, body = await answered(sent.replace(b"messages", b"responses"), HttpLimits(connections=0))
    assert (status, headers["retry-after"], set(body)) == (503, "1", {"error"})
    assert "request-id" not in headers


@pytest.mark.parametrize("sent", [b"GARBAGE\r\n\r\n", b"POST /v1/responses HTTP/1.1\r\nhost: x\r\n", b"POST /v1/mess"])
async def test_other_paths_keep_openais(sent: bytes) -> None:
    _, headers, body = await answered(sent, SHORT)
    assert set(body) == {"error"}
    assert "x-request-id" in headers


async def test_what_follows_a_whole_request_has_no_path_yet() -> None:
    whole = POST + b"content-length: 0\r\n\r\n"
    _, headers, body = await answered(whole + b"GARBAGE\r\n\r\n")
    assert "request-id" not in headers
    assert set(body) == {"error"}
