"""Single requests to a gateway, beside its load."""

from __future__ import annotations

import http.client

from .processes import BenchmarkError, Child
from .subjects import KEY

_TIMEOUT_S = 60


def call(child: Child, method: str, path: str, body: bytes | None = None) -> bytes:
    """The body of the answer, streamed or not.

    Raises:
        BenchmarkError: it is not 200; the message has its beginning.
    """
    connection = http.client.HTTPConnection("127.0.0.1", child.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise BenchmarkError(f"{path}: {answer.status} {said[:300]!r}")
    return said
