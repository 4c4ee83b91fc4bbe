"""What an endpoint asks of a served model, after validation and before the prompt is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.generation import Sampling


@dataclass(frozen=True, slots=True)
class ChatAsk:
    """One answer to a conversation.

    Attributes:
        messages: role, content as text, and whatever else templates read.
        size: characters of all contents, which decides where the prompt is built.
        sampling: how tokens are drawn.
        max_tokens: tokens at most; None takes the rest of the context, more than that is clamped.
        stop: stop strings.
        logprobs: whether log-probs are wanted.
        top_logprobs: alternatives per token, 0 to 20.
    """

    messages: Sequence[Mapping[str, Any]]
    size: int
    sampling: Sampling
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
