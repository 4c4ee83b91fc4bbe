"""The hand-over of a generation in flight to whoever answers the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gateway.generation import Piece


@dataclass(slots=True)
class PieceWithIds(Piece):
    """A piece with the ids that were counted since the piece before it.

    Attributes:
        ids: token ids of the answer.
    """

    ids: Sequence[int] = ()


Forward = Callable[[Sequence[Piece | str]], Callable[[], Awaitable[None]] | None]
"""Takes pieces at once, a bare text for one that has nothing else.

What it returns, unless that is None, waits until the next may come."""


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probs of a prompt, from its second token on.

    Attributes:
        chosen: one for each token.
        top: for each token its alternatives as (token id, log-prob), best first; empty where none were asked for.
    """

    chosen: Sequence[float]
    top: Sequence[Sequence[tuple[int, float]]] = ()
