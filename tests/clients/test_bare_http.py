"""What comes back to who speaks HTTP by hand, or something else."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import time

import httpx
import pytest

from tests.clients.conftest import TINY
from tests.stack import GatewayProcess

# Greedy: sampled, an answer may end before its three tokens.
ASKED = {"model": TINY, "messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "temperature": 0}


def exchange(gateway: GatewayProcess, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Send bytes; status line, headers (lower-case names) and body of what comes until the gateway closes."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while data := connection.recv(4096):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}, body


@pytest.fixture
def gateway(tiny_gateways: dict[str, GatewayProcess]) -> GatewayProcess:
    return tiny_gateways["tokens"]


@pytest.mark.parametrize(
    "request_", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
)
def test_what_is_no_http_is_refused_in_openais_shape(gateway: GatewayProcess, request_: bytes) -> None:
    status, headers, body = exchange(gateway, request_)
    assert status == "HTTP/1.1 400 Bad Request"
    assert headers["content-type"] == "application/json"
    assert len(body) == int(headers["content-length"])
    error = json.loads(body)["error"]
    assert (error["type"], error["message"]) == ("invalid_request_error", "The request is not valid HTTP/1.1.")


def test_a_head_is_bounded(gateway: GatewayProcess) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-long: %s\r\n\r\n"
    assert exchange(gateway, request % (b"a" * 60_000))[0] == "HTTP/1.1 200 OK"
    status, headers, body = exchange(gateway, request % (b"a" * 70_000))
    assert status == "HTTP/1.1 431 Request Header Fields Too Large"
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["error"]["message"] == ("The request line and headers are larger than the limit of 64 KiB.")


def test_a_head_without_end_is_not_read_to_its_end(gateway: GatewayProcess) -> None:
    """Else one connection would hold up all others: the parser's time grows with the square of a header."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nx-long: ")
        with pytest.raises(ConnectionError):
            connection.sendall(b"a" * 2**26)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_http_1_0_gets_the_whole_answer(gateway: GatewayProcess, stream: bool) -> None:
    content = json.dumps({**ASKED, "stream": stream}).encode()
    head = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    request = b"POST /v1/chat/completions HTTP/1.0\r\n" + head.encode() + content
    status, headers, body = exchange(gateway, request)
    assert status.split()[1] == "200"
    assert "transfer-encoding" not in headers
    assert len(body) == int(headers["content-length"])
    if stream:
        assert body.startswith(b"data: {")
        assert body.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(body)["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("pieces", [1, 2])
def test_an_offer_of_another_protocol_is_passed_over(gateway: GatewayProcess, pieces: int) -> None:
    """Java's HTTP client, and what stands on it, offers HTTP/2 with every request without TLS."""
    content = json.dumps(ASKED).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        f"Content-Length: {len(content)}\r\nHost: x\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
        "Upgrade: h2c\r\nContent-Type: application/json\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        for _ in range(2):  # the connection serves further requests
            if pieces == 1:
                connection.sendall(head + content)
            else:
                connection.sendall(head)
                connection.sendall(content)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200
            assert json.loads(answer.read())["usage"]["completion_tokens"] == 3


def test_the_page_of_the_api_asks_no_other_host(gateway: GatewayProcess) -> None:
    for path in ("/docs", "/docs/docs.js", "/docs/docs.css", "/docs/page.css", "/docs/parts.js", "/docs/request.js"):
        answer = httpx.get(f"{gateway.url}{path}")
        assert answer.status_code == 200
        assert not re.search(r"(?i:https?:|@import)|url\(", answer.text)
        assert "connect-src 'self'" in answer.headers["content-security-policy"]
    assert "/v1/chat/completions" in httpx.get(f"{gateway.url}/openapi.json").json()["paths"]


def test_the_api_description_tells_the_errors_that_come(gateway: GatewayProcess) -> None:
    document = httpx.get(f"{gateway.url}/openapi.json").json()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert "422" not in operation["responses"], path  # FastAPI's own, which never comes
            answer = operation["responses"]["400"]
            if "content" in answer:  # not of HEAD
                schema = answer["content"]["application/json"]["schema"]
                shapes = [one["$ref"].rpartition("/")[2] for one in schema.get("anyOf", [schema])]
                own = ["AnthropicError"] if path.startswith("/v1/messages") else ["Error"]
                both = ["Error", "AnthropicError"] if path.startswith("/v1/models") else own
                assert shapes in (own, both), path
    came = httpx.get(f"{gateway.url}/v1/models/none").json()
    assert document["components"]["schemas"]["ErrorDetails"]["required"] == list(came["error"])


def test_a_client_that_asks_twice_and_leaves_is_no_error(gateway: GatewayProcess) -> None:
    """With a second request waiting nobody reads the connection: that it broke is seen by writing alone."""
    body = json.dumps({"model": TINY, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    before = len(gateway.log_lines())
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        connection.sendall(request * 2)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    deadline = time.monotonic() + 30
    while not any("/v1/chat/completions" in line for line in gateway.log_lines()[before:]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    httpx.get(f"{gateway.url}/health/live")  # what follows the access log's line is over, too
    assert [line for line in gateway.log_lines()[before:] if '"ERROR"' in line] == []
