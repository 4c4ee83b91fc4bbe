"""Whether a gateway sends an event before it has a token: its first event is early then, and no token's."""

from __future__ import annotations

import http.client
import time

from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.subjects import KEY, body

from .peer import Peer

_TOKEN_US = 500_000
_TIMEOUT_S = 30


def begins_early(peer: Peer) -> bool:
    """Ask for one token that takes half a second, and see what comes in the first half of that.

    Raises:
        BenchmarkError: the answer is no stream of events.
    """
    peer.pace(_TOKEN_US)
    connection = http.client.HTTPConnection("127.0.0.1", peer.child.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    try:
        begun = time.monotonic()
        connection.request("POST", "/v1/chat/completions", body(1).read_bytes(), headers)
        answer = connection.getresponse()
        while line := answer.readline():
            if line.startswith(b"data:"):
                return time.monotonic() - begun < _TOKEN_US / 2e6
    finally:
        connection.close()
    raise BenchmarkError(f"{peer.name} sent no event")
