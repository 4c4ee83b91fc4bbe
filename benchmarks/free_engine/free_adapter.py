"""``TRITON_ENGINE=free``: the reference engine's adapter with an engine that computes nothing.

So the cost of a response is that of making and sending it. A step gives every request its next token; the answer is the
prompt, over and over, up to the limit. Like the reference engine it asks in each step whether the clients are still
there, and tells its figures. It needs ENGINE_PATH to be this folder, and a model that the reference engine can load.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from cpu_double import reference_adapter
from cpu_double.reference_engine import Stats
from wire.request import Request
from wire.response import Response

_BLOCK = 32


class Adapter(reference_adapter.Adapter):
    """An adapter that serves a `FreeEngine`."""

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        super().__init__(args, folder)
        with self._wake:  # nothing was submitted yet: the engine thread waits
            self._engine = FreeEngine()  # type: ignore[assignment]


class FreeEngine:
    """The part of `ReferenceEngine` that the adapter uses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request] = deque()
        self._given: dict[Request, int] = {}  # tokens so far
        self._stopped: set[str] = set()
        self._iteration = 0

    @property
    def busy(self) -> bool:
        """Whether ``step`` has anything to do."""
        return bool(self._given or self._waiting)

    def submit(self, request: Request) -> None:
        """Take a request."""
        with self._lock:
            self._waiting.append(request)

    def cancel(self, request_id: str) -> None:
        """End a request at the next step."""
        with self._lock:
            self._stopped.add(request_id)

    def step(self) -> list[Response]:
        """Make the next token of every request."""
        self._iteration += 1
        with self._lock:
            self._given.update(dict.fromkeys(self._waiting, 0))
            self._waiting.clear()
            stopped, self._stopped = self._stopped, set()
        responses = []
        for request, given in list(self._given.items()):
            if request.id in stopped or request.is_cancelled():
                del self._given[request]
                responses.append(Response(request, final=True, finish="cancelled"))
                continue
            final = given + 1 >= request.max_tokens
            token = request.prompt[given % len(request.prompt)]
            responses.append(Response(request, ids=[token], final=final, finish="length" if final else None))
            self._given[request] = given + 1
            if final:
                del self._given[request]
        return responses

    def abort(self) -> list[Request]:
        """Drop every request and return them."""
        with self._lock:
            requests = [*self._given, *self._waiting]
            self._given.clear()
            self._waiting.clear()
        return requests

    def stats(self) -> Stats:
        """A snapshot, counted as the reference engine counts."""
        used = sum(-(-(len(request.prompt) + given) // _BLOCK) for request, given in self._given.items())
        return Stats(
            active=len(self._given),
            max_active=1024,
            scheduled=len(self._given),
            context=sum(not given for given in self._given.values()),
            waiting=len(self._waiting),
            kv_blocks_max=65536,
            kv_blocks_used=used,
            kv_blocks_reused=0,
            iteration=self._iteration,
        )
