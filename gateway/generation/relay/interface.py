"""The agreement by which engine, generation, answer and response let a token skip them."""

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
    """An engine that can hand over tokens without waking its reader, and be cancelled without cancelling its reader."""

    def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence as ``Engine.generate`` does, except for the tokens that ``take`` takes.

        Args:
            request: what to generate.
            take: may be called, whenever all chunks were taken and the next is waited for, with the tokens of responses
                that say nothing else; those that it does not take come as chunks. It takes none before the first chunk.
            began: called with what cancels the request, anew where it is sent anew: then the iteration ends with an
                ``EngineError``.
        """
        ...


def can_relay(engine: object) -> TypeGuard[RelayingEngine]:
    """Whether an engine is a ``RelayingEngine``; asked for each request, so cheaper than the check of a protocol."""
    return hasattr(engine, "generate_relayed")


@dataclass(slots=True)
class StreamOutput:
    """The client's end of one streamed answer, shared by the generator of its events and the response that sends them.

    Attributes:
        write: writes events on one line each; None until the response has begun, and under another server.
        ending: whether the events that the generator yields next are its last.
        copy: takes what is written by ``write``; None where no copy is wanted.
    """

    write: Write | None = None
    ending: bool = False
    copy: Callable[[bytes], None] | None = None


def copied(write: Write, copy: Callable[[bytes], None]) -> Write:
    """Make a function that writes, and gives what it writes to ``copy``."""

    def both(events: bytes) -> Drain | None:
        copy(events)
        return write(events)

    return both
