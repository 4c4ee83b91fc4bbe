"""A server of http.server's handlers on a free port."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import Self


class HandlerServer:
    """Gives each request to a handler in a thread of its own; a context manager.

    Attributes:
        url: its base.
        closing: set at its end, for handlers that wait.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.closing = threading.Event()
        quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), quiet)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.http.shutdown()
        self._thread.join()
        self.http.server_close()
