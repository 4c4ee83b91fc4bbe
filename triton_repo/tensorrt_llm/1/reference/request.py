"""What is asked of the reference engine and what it answers, in plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Finish = Literal["stop", "length", "cancelled"]


class RefusedError(ValueError):
    """A request that the engine does not take, in the engine's words (contract section 2.10).

    Attributes:
        queue_full: True when the same request may be taken later.
    """

    def __init__(self, message: str, *, queue_full: bool = False) -> None:
        super().__init__(message)
        self.queue_full = queue_full


@dataclass(frozen=True)
class Sampling:
    """Sampling as it arrived: absent tensors have TensorRT-LLM's defaults (contract section 2).

    Attributes:
        temperature: None when absent, which is 1.0; an explicit 0.0 has the trap of contract 2.1.
        top_k: None when absent, which is 0.
        top_p: None when absent, which is 0.0.
        min_tokens: end_id is suppressed before this many tokens.
        bias: [vocab], added to the logits.
        bad_words: token sequences that are never completed.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    seed: int = 0
    bias: NDArray[np.float32] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()


@dataclass(eq=False)
class Request:
    """One sequence to generate.

    Attributes:
        id: Triton's request id; may be empty, then ``cancel`` cannot reach it.
        prompt: token ids.
        max_tokens: tokens to generate at most; clamped in silence to what max_seq_len leaves.
        end_id: ends the answer and is not part of it; negative disables it.
        stop_words: token sequences that end the answer and stay in it.
        streaming: one response per token instead of one in all.
        echo: whether a non-streaming answer begins with the prompt.
        log_probs: whether responses carry log-probs of the chosen tokens.
        top_log_probs: how many alternatives per token responses carry.
        is_cancelled: asked once in each step.
        handle: the caller's own, untouched.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    end_id: int = -1
    stop_words: tuple[tuple[int, ...], ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    streaming: bool = False
    echo: bool = False
    log_probs: bool = False
    top_log_probs: int = 0
    is_cancelled: Callable[[], bool] = bool
    handle: object = None


@dataclass(frozen=True)
class Response:
    """One answer to a request; the last one has ``final``.

    Attributes:
        ids: streaming: new tokens. Otherwise all, after the prompt where the request asked for echo.
        log_probs: of every token generated so far, also when streaming.
        cum_log_prob: their sum.
        top_log_probs: for each new token (all, when not streaming) its alternatives (id, log-prob), best first.
        finish: why it ended, on the final response.
    """

    request: Request
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    cum_log_prob: float = 0.0
    top_log_probs: list[list[tuple[int, float]]] = field(default_factory=list)
    final: bool = False
    finish: Finish | None = None
