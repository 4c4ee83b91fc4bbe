"""Drafts of an answer before it is generated: from the client, or from a draft model."""

from __future__ import annotations

import threading

from gateway.bad_request import BadRequestError
from gateway.config import ModelSettings
from gateway.generation import EngineError, EngineFeatures, SamplingParams
from gateway.serving.loading import ModelParts
from gateway.serving.long_work import LongWork
from gateway.serving.prompts import Bound, work_of


def long_work(params: SamplingParams) -> LongWork | None:
    """Where the prediction is tokenized; None on the event loop."""
    return work_of(len(params.prediction or ""))


def tokenize_prediction(
    params: SamplingParams, parts: ModelParts, left: threading.Event | None = None
) -> tuple[int, ...]:
    """The ids of the predicted text, in which nothing is a control token; none where nothing is predicted.

    Args:
        params: with the text.
        parts: of the model.
        left: set when nobody waits for them any more.

    Raises:
        LeftError: nobody waits.
        BadRequestError: it is longer than any answer.
    """
    text = params.prediction
    if not text:
        return ()
    try:
        Bound(parts, left=left).check_text(text)
    except EngineError:
        message = f"The prediction is longer than this model's context of {parts.max_seq_len} tokens."
        raise BadRequestError(message, "prediction", "string_above_max_length") from None
    return tuple(parts.tokenizer.encode_literal(text))


def sent_length(size: int, max_tokens: int, features: EngineFeatures) -> int:
    """How many tokens of a prediction are sent.

    The last token of an answer is not of a draft: it follows from what the engine accepts.

    Args:
        size: tokens of the prediction.
        max_tokens: of the answer, which a prediction never shortens.
        features: of the engine.
    """
    most = size if features.max_draft_tokens is None else features.max_draft_tokens
    return min(size, most, max_tokens - 1)


def draft_length(params: SamplingParams, settings: ModelSettings) -> int:
    """Tokens that the draft model guesses at a time, 0 for none.

    The operator's number holds for requests that say nothing and that go with it.

    Raises:
        BadRequestError: the request wants a draft model and something that goes with none.
    """
    wanted = params.num_draft_tokens
    if wanted == 0:
        return 0
    obstacle = _obstacle(params)
    if obstacle is None:
        return settings.speculative.num_draft_tokens or 0 if wanted is None else wanted
    if wanted:
        message = f"'num_draft_tokens' does not go together with {obstacle}; leave it out, or send 0."
        raise BadRequestError(message, "num_draft_tokens", "invalid_value")
    return 0


def _obstacle(params: SamplingParams) -> str | None:
    if params.guide is not None:
        return "a form that the answer is held to, such as 'response_format' or a demanded call"
    if params.beam_width > 1:
        return "'use_beam_search'"
    return None if params.prompt_logprobs is None else "'prompt_logprobs'"
