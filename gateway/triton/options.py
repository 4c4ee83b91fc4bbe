"""From a model's settings to what the triton room wants to know of its engine."""

from __future__ import annotations

from gateway.config import ModelSettings
from gateway.triton.abilities import EngineOptions


def engine_options(settings: ModelSettings) -> EngineOptions:
    """What the operator says of the engine of one model."""
    return EngineOptions(
        vocab_size=settings.vocab_size,
        tokens_per_block=settings.tokens_per_block,
        generation_logits=settings.logits_for_logprobs,
        context_logits_tokens=settings.max_logits_tokens if settings.logits_for_logprobs else 0,
        max_draft_tokens=settings.speculative.max_draft_tokens,
    )
