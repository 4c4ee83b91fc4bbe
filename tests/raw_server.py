"""A server of bytes, for answers that no framework gives."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator

_SECONDS = 20.0


def read_request(peer: socket.socket) -> tuple[bytes, bytes]:
    """Read one HTTP request, whole: a client that still sends loses an early answer; returns its head and its body."""
    received = b""
    while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < _length(received):
        part = peer.recv(65536)
        if not part:
            raise ConnectionError("closed within a request")
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


def _length(received: bytes) -> int:
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)\r\n", received)
    return int(found[1]) if found else 0


@contextlib.contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does with each connection what it is told, in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def connection(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            serve(peer)
            peer.settimeout(_SECONDS)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):  # closed with bytes unread, a socket resets the connection, and the answer is lost
                pass

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threads.append(threading.Thread(target=connection, args=(peer,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join()
