"""What comes back to who speaks HTTP by hand, or something else."""

from __future__ import annotations

import json
import socket

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
