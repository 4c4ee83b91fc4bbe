"""The relay of one generation's tokens to the client."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from gateway.generation import EngineChunk, Piece
from gateway.generation.engine import ScoredToken
from gateway.generation.relay.interface import Drain, Forward, nothing_shown


class TokenRelay:
    """Writes tokens as events to the client, in the task that reads the engine.

    The relay is open only while the responding task waits for text and none is ready, so that no event overtakes
    another.

    Attributes:
        forward: writes pieces to the client; None while the relay is closed.
        drain: waits for room at the client; None where there is room.
        last: ``time.perf_counter()`` when tokens last came, by the relay or past it; 0.0 before the first.
        resumed: ``time.perf_counter()`` when the engine last responded without tokens, or read again after a wait for
            the client; 0.0 before.
        shown: ``time.perf_counter()`` when the client was last sent text by the relay; 0.0 before.
        pause_s: seconds; a longer silence of the engine before tokens is reported.
        paused: takes the report of a silence.

    Args:
        feed: makes text from a token, None where the token is not to be taken (``SequenceAssembler.feed_token``).
        feed_scored: makes a piece from a token with its log-prob; None as of ``feed``.
        observe: notes the seconds that each of a number of tokens took.
    """

    __slots__ = (
        "_feed",
        "_feed_scored",
        "_observe",
        "drain",
        "forward",
        "last",
        "pause_s",
        "paused",
        "resumed",
        "shown",
    )

    def __init__(
        self,
        feed: Callable[[int], str | None],
        feed_scored: Callable[[ScoredToken], Piece | None],
        observe: Callable[[float, int], None],
    ) -> None:
        self.forward: Forward | None = None
        self.drain: Drain | None = None
        self.last = 0.0
        self.resumed = 0.0
        self.shown = 0.0
        self._feed = feed
        self._feed_scored = feed_scored
        self._observe = observe
        self.pause_s = math.inf
        self.paused: Callable[[float], None] | None = None

    def take(self, tokens: Sequence[int] | Sequence[ScoredToken]) -> int:
        """Send single tokens to the client; returns how many were taken, from the first on.

        None is taken while the relay is closed, before the first token of the answer, and while the client has no room.
        """
        forward = self.forward
        if forward is None or self.drain is not None or not self.last:
            return 0
        feed: Callable[[Any], Piece | str | None] = self._feed if isinstance(tokens[0], int) else self._feed_scored
        piece = feed(tokens[0])
        if piece is None:
            return 0
        taken = 1
        shown: Sequence[Piece | str] = (piece,) if piece else ()
        if len(tokens) > 1:
            taken, shown = _feed_more(feed, tokens, shown)
        now = time.perf_counter()
        gap = now - self.last
        self._observe(gap / taken, taken)
        if gap > self.pause_s and self.paused is not None:
            self.paused(min(gap, now - self.resumed))
        self.last = now
        if shown:
            drain = forward(shown)
            if drain is not nothing_shown:
                self.shown, self.drain = now, drain
        return taken

    def take_chunk(self, chunk: EngineChunk) -> bool:
        """Send the token of a chunk to the client as ``take`` does; returns whether it was taken.

        A chunk with anything else is not taken.
        """
        more = chunk.final or chunk.finish_reason or chunk.failure or chunk.prompt_logprobs is not None
        if more or chunk.prompt_tokens is not None or len(chunk.ids) != 1:
            return False
        if chunk.logprobs is None:
            return self.take(chunk.ids) == 1
        top = chunk.top_logprobs
        if len(chunk.logprobs) != 1 or (top is not None and len(top) != 1):
            return False
        return self.take(((chunk.ids[0], chunk.logprobs[0], None if top is None else top[0]),)) == 1

    def show(self, piece: Piece) -> None:
        """Send a piece of text to the client; the relay must be open."""
        assert self.forward is not None  # noqa: S101 - as demanded
        drain = self.forward((piece,))
        if drain is not nothing_shown:
            self.shown, self.drain = self.last, drain


def _feed_more(
    feed: Callable[[Any], Piece | str | None], tokens: Sequence[Any], shown: Sequence[Piece | str]
) -> tuple[int, Sequence[Piece | str]]:
    """Feed the tokens behind the first, as far as they are taken; how many then are, and what they show together."""
    pieces = [*shown]
    taken = 1
    for token in tokens[1:]:
        piece = feed(token)
        if piece is None:
            break
        taken += 1
        if piece:
            pieces.append(piece)
    return taken, pieces
