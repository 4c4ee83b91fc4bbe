"""The interfaces of the relay between engine, generation, answer and response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from gateway.generation import EngineChunk, GenerationRequest, Piece
from gateway.generation.engine import ScoredToken

Drain = Callable[[], Awaitable[None]]
"""Waits until a client has room for more."""

Write = Callable[[bytes], Drain | None]
"""Writes whole events to a client; returns None where there is room for the next."""

Forward = Callable[[Sequence[Piece | str]], Drain | None]
"""Writes pieces of an answer, a bare text for one that has nothing else.

It returns what ``Write`` does, or ``nothing_shown`` where they made no event: a part of a call that is held back.
"""


async def nothing_shown() -> None:
    """Wait for nothing: no event was written."""


Take = Callable[[Sequence[int] | Sequence[ScoredToken]], int]
"""Takes tokens, at least one, of which each came alone; returns how many it took, from the first on."""

Began = Callable[[Callable[[], None]], None]
"""Is called with the function that cancels a request which has begun."""


class RelayingEngine(Protocol):
    """An engine that can pass tokens on without waking its reader."""

    def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence as ``Engine.generate`` does, except for tokens that ``take`` takes.

        Args:
            request: the request.
            take: may be called while the next chunk is awaited, with the tokens of responses that have nothing else;
                tokens that it does not take come as chunks. It takes none before the first chunk.
            began: called with a function that cancels the request, again where the request is sent again: then the
                iteration ends with an ``EngineError``.
        """
        ...


def can_relay(engine: object) -> TypeGuard[RelayingEngine]:
    """Tell whether an engine is a ``RelayingEngine``, faster than the check of a protocol."""
    return hasattr(engine, "generate_relayed")


@dataclass(slots=True)
class StreamOutput:
    """The client's end of one streamed answer, shared by its generator of events and its response.

    Attributes:
        write: writes events on one line each; None until the response has begun, and under another server.
        ending: whether the events that the generator yields next are its last.
        copy: takes the bytes that ``write`` writes; None without a copy.
    """

    write: Write | None = None
    ending: bool = False
    copy: Callable[[bytes], None] | None = None


def copied(write: Write, copy: Callable[[bytes], None]) -> Write:
    """Make a function that writes, and gives the written bytes to ``copy``."""

    def both(events: bytes) -> Drain | None:
        copy(events)
        return write(events)

    return both
