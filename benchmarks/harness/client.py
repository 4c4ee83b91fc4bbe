"""Single requests to a gateway, beside its load."""

from __future__ import annotations

import http.client

from .processes import BenchmarkError, Child
from .subjects import KEY

_TIMEOUT_S = 60


def call(child: Child, method: str, path: str, body: bytes | None = None) -> bytes:
    """Send a request; return the body of the answer, streamed or not.

    Raises:
        BenchmarkError: it is not 200; the message has its beginning.
    """
    status, said = _asked(child, method, path, body)
    if status != http.HTTPStatus.OK:
        raise BenchmarkError(f"{path}: {status} {said[:300]!r}")
    return said


def post(child: Child, path: str, body: bytes) -> int:
    """Send a request; return any status of the answer."""
    return _asked(child, "POST", path, body)[0]


def _asked(child: Child, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", child.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
