"""A free port for a server of the tests."""

from __future__ import annotations

import random
import socket

# Below the ports that Linux gives to outgoing connections (32,768 to 60,999): of those, one that was free a second ago
# is taken now and then, when thousands of requests run beside.
_OFFERED = range(20_000, 32_768)
_given: set[int] = set()
_chance = random.SystemRandom()  # several processes choose at the same time


def free_port() -> int:
    """Choose a TCP port of 127.0.0.1 that nobody listens on just now; each is given once."""
    while True:
        port = _chance.choice(_OFFERED)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
