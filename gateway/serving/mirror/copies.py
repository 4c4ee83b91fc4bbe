"""Chooses the requests that are copied, and holds their data until their answers have gone to the client."""

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
_MOST_HELD: Final = 64 * 2**20  # bytes of all copies whose answers have not ended
_STEP: Final = 2**16
_GOLDEN: Final = 0.6180339887498949  # its multiples spread evenly, and in step with no pattern of a client


def is_chosen(number: int, share: float) -> bool:
    """Whether the request with this number is among those that are copied."""
    return number * _GOLDEN % 1 < share


class RequestCopies:
    """Follows the requests of which a copy is wanted.

    Args:
        link: takes what was copied.
    """

    def __init__(self, link: MirrorLink) -> None:
        self.link = link
        self.held = 0
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def begin(self, model: ModelSettings, path: str, body: bytes, request_id: str) -> RequestCopy | None:
        """Begin a copy, if one is wanted of this request.

        Args:
            model: that answers it.
            path: of the endpoint.
            body: of the request.
            request_id: names it in the access log.
        """
        mirror, path = model.mirror, path.rstrip("/")
        if mirror is None or path not in MIRRORED or not is_chosen(next(self._numbers[model.name]), mirror.share):
            return None
        size = len(body)
        if size > LONGEST_REQUEST or self.held + size > _MOST_HELD:
            self.link.drop(model.name, "too_large" if size > LONGEST_REQUEST else "no_memory")
            return None
        return RequestCopy(self, model.name, path, body, request_id)


class RequestCopy:
    """One request and the bytes of its answer so far.

    Args:
        copies: of which it is one.
        model: that answers.
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
        self._room = 0  # until more is asked for
        self._held = len(body)
        copies.held += self._held
        self._first: float | None = None
        self._streamed = False
        self._began = time.perf_counter()

    def take(self, data: bytes) -> None:
        """Keep a piece of the answer: called for each token, so it does no more than it must."""
        answer = self._answer  # one piece of memory: to keep the pieces would cost a new page for every few tokens
        answer += data
        if len(answer) > self._room:
            self._grow(len(answer))

    async def streamed(
        self, events: AsyncGenerator[bytes, None], output: StreamOutput, comment: bytes
    ) -> AsyncGenerator[bytes, None]:
        """Pass on the events of an answer as they are.

        Args:
            events: of the answer.
            output: shared with them; what is written past this generator is copied, too.
            comment: an event that says nothing.
        """
        output.copy = self.take
        self._streamed = True
        dropped: str | None = "client_left"
        try:
            async with contextlib.aclosing(events):
                async for data in events:
                    if self._first is None and data != comment:
                        self._first = time.perf_counter()
                    self.take(data)
                    yield data
            dropped = "not_answered"
        finally:
            self._end(None if output.ending else dropped)

    def whole(self, body: bytes) -> None:
        """Take an answer that is not streamed, and hand both over."""
        self.take(body)
        self._end(None)

    def __del__(self) -> None:
        """Give up a copy without an answer when the last reference to the copy is gone."""
        self._end("not_answered")

    def _grow(self, size: int) -> None:
        copies = self._copies
        if not self._held:  # given up: nothing of the rest is kept
            self._answer.clear()
            return
        more = size - self._room + _STEP
        if self._held + more > LONGEST_REQUEST + LONGEST_ANSWER or copies.held + more > _MOST_HELD:
            self._answer, self._body, self._room = bytearray(), b"", 0
            self._end("no_memory" if copies.held + more > _MOST_HELD else "too_large")
            return
        self._room += more
        self._held += more
        copies.held += more

    def _end(self, dropped: str | None) -> None:
        copies, held = self._copies, self._held
        if not held:
            return
        self._held = 0
        copies.held -= held
        if dropped is not None:
            copies.link.drop(self._model, dropped)
            return
        first = self._first
        said = {
            "path": self._path,
            "id": self._request_id,
            "streamed": self._streamed,
            "first_s": None if first is None else first - self._began,
            "whole_s": time.perf_counter() - self._began,
        }
        copies.link.send(self._model, said, self._body, self._answer)
