"""Pieces of a sequence for clients, and its usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.generation.logprobs import TokenLogprob


@dataclass(slots=True)
class Piece:
    """What one event shows.

    Attributes:
        text: new text; may be empty when only log-prob entries are left to show.
        logprobs: entries of the tokens whose text became complete with this event; empty when not asked for.
        ids: token ids that were counted since the piece before it; None when not asked for.
    """

    text: str
    logprobs: list[TokenLogprob] = field(default_factory=list)
    ids: Sequence[int] | None = None


class Predicted(NamedTuple):
    """What became of predicted tokens.

    Attributes:
        accepted: those that the answer begins with, by their ids and whatever of it came of the engine's draft.
        rejected: the others, which are not in their place in the answer.
    """

    accepted: int
    rejected: int


_NOTHING_PREDICTED = Predicted(0, 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts.

    Attributes:
        prompt_tokens: ids that the engine was given.
        completion_tokens: ids generated up to and including the one that completed a stop string, or that is a stop id;
            neither EOS nor a trimmed end id is counted.
        cached_tokens: prompt tokens that the engine found in its KV cache; None when not asked for or not known, as
            when the gateway ends the answer before the engine's last response, which carries it.
        predicted: what became of the tokens that the request predicted; None when the engine answers without ids.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    predicted: Predicted | None = _NOTHING_PREDICTED
