"""Chooses the requests to copy, and holds their data until the client has the response."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from gateway.generation.relay.interface import StreamOutput
from gateway.serving.mirror.link import MirrorLink
from gateway.settings import ModelSettings

MIRRORED: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses"})
"""The endpoints whose requests can be copied: those whose answers can be compared."""

LONGEST_REQUEST: Final = 4 * 2**20
LONGEST_ANSWER: Final = 8 * 2**20
_MOST_HELD: Final = 64 * 2**20  # bytes of all copies whose responses have not ended
_STEP: Final = 2**16
_GOLDEN: Final = 0.6180339887498949  # its multiples spread evenly, and in step with no pattern of a client


def is_chosen(number: int, share: float) -> bool:
    """Tell whether the request with this number is copied."""
    return number * _GOLDEN % 1 < share


class RequestCopies:
    """Copies requests and their responses.

    Args:
        link: takes the copies.
    """

    def __init__(self, link: MirrorLink) -> None:
        self.link = link
        self.held = 0
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def begin(self, model: ModelSettings, path: str, body: bytes, request_id: str) -> RequestCopy | None:
        """Begin a copy of a request, if it is chosen; else None.

        Args:
            model: that serves it.
            path: of the endpoint.
            body: of the request.
            request_id: names it in the access log.
        """
        mirror, path = model.mirror, path.rstrip("/")
        if mirror is None or path not in MIRRORED or not is_chosen(next(self._numbers[model.name]), mirror.share):
            return None
        if len(body) > LONGEST_REQUEST:
            self.link.drop(model.name, "too_large")
            return None
        if self.held + len(body) > _MOST_HELD:
            self.link.drop(model.name, "no_memory")
            return None
        return RequestCopy(self, model.name, path, body, request_id)


class RequestCopy:
    """One request and the bytes of its response so far.

    Args:
        copies: of which it is one.
        model: that serves it.
        path: of the endpoint.
        body: of the request.
        request_id: names it in the access log.
    """

    __slots__ = (
        "_answer",
        "_began",
        "_body",
        "_copies",
        "_first",
        "_held",
        "_model",
        "_path",
        "_request_id",
        "_room",
        "_streamed",
    )

    def __init__(self, copies: RequestCopies, model: str, path: str, body: bytes, request_id: str) -> None:
        self._copies, self._model, self._path, self._body, self._request_id = copies, model, path, body, request_id
        self._answer = bytearray()
        self._room = 0  # bytes that `_grow` has reserved for the response
        self._held = len(body)
        copies.held += self._held
        self._first: float | None = None
        self._streamed = False
        self._began = time.perf_counter()

    def take(self, data: bytes) -> None:
        """Add bytes of the response; called for each token, so it does little."""
        answer = self._answer  # one buffer: separate pieces would use a new page for every few tokens
        answer += data
        if len(answer) > self._room:
            self._grow(len(answer))

    async def streamed(
        self, events: AsyncGenerator[bytes, None], output: StreamOutput, comment: bytes
    ) -> AsyncGenerator[bytes, None]:
        """Pass on the events of a response, and copy them.

        Args:
            events: events of the response.
            output: output of the response; bytes that it writes past this generator are copied, too.
            comment: an event without content.
        """
        output.copy = self.take
        self._streamed = True
        dropped = "client_left"
        try:
            async with contextlib.aclosing(events):
                async for data in events:
                    if self._first is None and data != comment:
                        self._first = time.perf_counter()
                    self.take(data)
                    yield data
            dropped = "not_answered"
        finally:
            if output.ending:
                self._send()
            else:
                self._drop(dropped)

    def whole(self, body: bytes) -> None:
        """Copy a response that is not streamed, and send the copy."""
        self.take(body)
        self._send()

    def __del__(self) -> None:
        """Give up a copy without a response when the last reference to the copy is gone."""
        self._drop("not_answered")

    def _grow(self, size: int) -> None:
        copies = self._copies
        if not self._held:  # the copy was given up
            self._answer.clear()
            return
        more = size - self._room + _STEP
        if copies.held + more > _MOST_HELD:
            self._drop("no_memory")
        elif self._held + more > LONGEST_REQUEST + LONGEST_ANSWER:
            self._drop("too_large")
        else:
            self._room += more
            self._held += more
            copies.held += more

    def _release(self) -> int:
        """Count its bytes no longer; returns how many they were, 0 where it has ended before."""
        held, self._held = self._held, 0
        self._copies.held -= held
        return held

    def _drop(self, reason: str) -> None:
        if self._release():
            self._answer, self._body, self._room = bytearray(), b"", 0
            self._copies.link.drop(self._model, reason)

    def _send(self) -> None:
        if not self._release():
            return
        first = self._first
        said = {
            "path": self._path,
            "id": self._request_id,
            "streamed": self._streamed,
            "first_s": None if first is None else first - self._began,
            "whole_s": time.perf_counter() - self._began,
        }
        self._copies.link.send(self._model, said, self._body, self._answer)
