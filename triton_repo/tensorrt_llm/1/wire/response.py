"""An engine's answer to a request, in plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from wire.request import Request

Finish = Literal["stop", "length", "cancelled"]


class Beam(NamedTuple):
    """One beam of an answer.

    Attributes:
        ids: generated tokens, after the prompt where the request asked for echo.
        log_probs: of the generated ones; empty where not asked for.
    """

    ids: list[int]
    log_probs: list[float]


@dataclass(frozen=True)
class Perf:
    """The cost of a request (wire contract 1.2). Times are monotonic nanoseconds, 0 where the event never happened.

    Attributes:
        blocks: KV-cache blocks in all and those of them that were reused; None where the engine does not report them.
        cached_tokens: prompt tokens that were not computed because of reuse; None where not reported.
        drafts: tokens of the draft in all and those of them that were accepted; None where there was no draft.
    """

    arrival_ns: int
    first_scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    blocks: tuple[int, int] | None = None
    cached_tokens: int | None = None
    drafts: tuple[int, int] | None = None


@dataclass(frozen=True)
class PromptScores:
    """The model's scores of the prompt itself, before any sampling parameter.

    Attributes:
        log_probs: of each prompt token but the first.
        top_log_probs: for each of these its alternatives (id, log-prob), best first.
        logits: [prompt, vocab] where asked for.
        ranks: the places of these tokens among all by their log-probs, from 1.
    """

    log_probs: list[float] = field(default_factory=list)
    top_log_probs: list[list[tuple[int, float]]] = field(default_factory=list)
    logits: NDArray[np.float32] | None = None
    ranks: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Response:
    """One answer to a request; the last one has ``final``.

    Attributes:
        ids: streaming: new tokens. Otherwise all, after the prompt where the request asked for echo.
        log_probs: of every token generated so far, also when streaming.
        cum_log_prob: their sum.
        top_log_probs: for each new token (all, when not streaming) its alternatives (id, log-prob), best first.
        finish: why it ended, on the final response.
        error: why it failed, on a final response that is no answer.
        prompt: once, on the first response, where asked for.
        logits: [tokens, vocab], raw: streaming, of the new tokens; otherwise of all that could have been generated,
            zeros after those that were.
        perf: on the final response, where asked for.
        beams: of a beam search, the best one first; ``ids`` and the log-probs above are then empty.
    """

    request: Request
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    cum_log_prob: float = 0.0
    top_log_probs: list[list[tuple[int, float]]] = field(default_factory=list)
    final: bool = False
    finish: Finish | None = None
    error: str | None = None
    prompt: PromptScores | None = None
    logits: NDArray[np.float32] | None = None
    perf: Perf | None = None
    beams: tuple[Beam, ...] = ()
