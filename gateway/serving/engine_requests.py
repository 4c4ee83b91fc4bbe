"""Makes requests to the engine from a prompt and the parameters of an answer."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Sequence

from gateway.generation import (
    EngineError,
    EngineFeatures,
    GenerationRequest,
    PromptTooLongError,
    SamplingParams,
    context_exceeded,
    too_many_tokens,
)
from gateway.generation.ids import new_id
from gateway.generation.request import PromptTable
from gateway.serving.loading import ModelParts
from gateway.serving.long_work import LongWork
from gateway.serving.prompts import LengthBound, check_ids, work_of
from gateway.settings import ModelSettings
from gateway.text.bad_request import BadRequestError
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import word_sequences

_SEEDS = 2**64
_UNSUPPORTED = "unsupported_parameter"


def engine_requests(
    prompt: Prompt,
    params: SamplingParams,
    *,
    parts: ModelParts,
    features: EngineFeatures,
    settings: ModelSettings,
    request_id: str,
    predicted: tuple[int, ...] = (),
) -> list[GenerationRequest]:
    """Make the ``params.n`` requests for one prompt; request ``i`` has the seed plus ``i``.

    Args:
        prompt: the prompt.
        params: parameters of the answer.
        parts: tokenizer and limits of the model.
        features: features of its engine.
        settings: settings of the model.
        request_id: prefix of the requests' ids.
        predicted: token ids of ``params.prediction``.

    Raises:
        BadRequestError: when the engine or the operator's limits do not allow what is asked.
        PromptTooLongError: the prompt leaves no room for an answer.
    """
    _check(params, parts, features, settings)
    table = None if params.prompt_table is None else _table(params.prompt_table, parts)
    length = parts.max_seq_len - (table.length if table else 0) - features.draft_room
    max_tokens = _room(prompt, params, length, settings)
    end_ids = () if params.ignore_eos else tuple(dict.fromkeys(parts.end_ids + params.end_ids))
    as_usual = end_ids == parts.end_ids and not features.hides_special_tokens
    seed = engine_seed(params.seed)
    drafts = params.num_draft_tokens is None and settings.speculative.num_draft_tokens
    first = GenerationRequest(
        id=f"{request_id}-{new_id()}",
        prompt=prompt,
        max_tokens=max_tokens,
        params=params,
        seed=seed,
        end_ids=end_ids,
        end_texts=parts.end_texts if as_usual else _end_texts(end_ids, parts, features),
        bad_word_ids=_word_ids(params.bad_words, parts) if params.bad_words else (),
        cached_tokens=True,
        vocab_size=features.vocab_size or parts.tokenizer.logits_size,
        prompt_table=table,
        draft=predicted,
        draft_limit=sent_length(len(predicted), max_tokens, features) if predicted else 0,
        num_draft_tokens=draft_length(params, settings) if params.num_draft_tokens or drafts else 0,
        use_draft_logits=settings.speculative.use_draft_logits,
    )
    if params.n == 1:
        return [first]
    return [first] + [
        dataclasses.replace(first, id=f"{request_id}-{new_id()}", seed=(seed + index) % _SEEDS)
        for index in range(1, params.n)
    ]


def engine_seed(seed: int | None) -> int:
    """Map a user's seed to the engine's unsigned 64 bits.

    Args:
        seed: any integer from -2**63 to 2**64 - 1; negative ones map by two's complement, so that different seeds stay
            different. None draws a random one below 2**63.

    Raises:
        ValueError: outside that range.
    """
    if seed is None:
        return random.getrandbits(63)
    if not -_SEEDS // 2 <= seed < _SEEDS:
        raise ValueError(f"The seed {seed} does not fit in 64 bits.")
    return seed % _SEEDS


def _word_ids(words: Sequence[str], parts: ModelParts) -> tuple[tuple[int, ...], ...]:
    return tuple(ids for word in words for ids in word_sequences(parts.tokenizer, word))


def _end_texts(end_ids: tuple[int, ...], parts: ModelParts, features: EngineFeatures) -> tuple[str, ...]:
    """The texts of end ids; of those that an answer's text never has, none: what looks like them is ordinary text."""
    tokenizer = parts.tokenizer
    hidden = features.hides_special_tokens
    return tuple("" if hidden and tokenizer.is_special(index) else tokenizer.token_text(index) for index in end_ids)


def _check(params: SamplingParams, parts: ModelParts, features: EngineFeatures, settings: ModelSettings) -> None:
    most_stops = settings.max_stops if "max_stops" in settings.model_fields_set else params.most_stops
    if len(params.stop) > most_stops:
        message = f"At most {most_stops} stop strings are supported, but {len(params.stop)} were given."
        raise BadRequestError(message, "stop", "array_above_max_length")
    if params.logprobs and not features.logprobs:
        raise BadRequestError("This model's engine returns no log-probabilities.", "logprobs", _UNSUPPORTED)
    most = min(features.max_top_logprobs, settings.max_top_logprobs)
    if params.top_logprobs > most:
        what = f"at most {most}" if most else "no"
        raise BadRequestError(f"This model returns {what} alternatives per token.", "top_logprobs", _UNSUPPORTED)
    if params.logit_bias:
        check_ids(list(params.logit_bias), parts.tokenizer, "logit_bias.{id}")
    if params.stop_token_ids:
        check_ids(params.stop_token_ids, parts.tokenizer, "stop_token_ids[{place}]")


def _table(name: str, parts: ModelParts) -> PromptTable:
    table = parts.prompt_tables.get(name)
    if table is None:
        known = f"it has {', '.join(sorted(parts.prompt_tables))}" if parts.prompt_tables else "it has no prompt tables"
        message = f"This model has no prompt table named {name!r}; {known}."
        raise BadRequestError(message, "prompt_table", "invalid_value")
    return table


def _room(prompt: Prompt, params: SamplingParams, max_seq_len: int, settings: ModelSettings) -> int:
    """Tokens that may be generated: what is wanted, within what the context leaves."""
    length = len(prompt.ids)
    room = max_seq_len - length
    if room < 1:
        why = (
            f"{too_many_tokens(length, max_seq_len - 1)}, because the answer needs at least one token; shorten the "
            "prompt."
        )
        raise PromptTooLongError(context_exceeded(why, max_seq_len), length, max_seq_len - 1)
    wanted = params.max_tokens
    rejected = settings.max_tokens_policy == "reject" and not params.clamp_max_tokens
    if wanted is not None and wanted > room and rejected:
        why = f"prompt is too long for an answer of {wanted} tokens: it has {length} tokens; shorten the prompt or"
        why += f" ask for at most {room} tokens."
        if wanted >= max_seq_len:
            why = (
                f"{length} tokens of the prompt and {wanted} tokens of the answer exceed it; ask for at most {room} "
                "tokens."
            )
        raise BadRequestError(context_exceeded(why, max_seq_len), params.max_tokens_name, "context_length_exceeded")
    limit = room if wanted is None else min(wanted, room)
    if params.min_tokens > limit:
        message = f"'min_tokens' must be at most {limit}, the most tokens of the answer."
        raise BadRequestError(message, "min_tokens", "invalid_value")
    return limit


def predictions_work(params: SamplingParams) -> LongWork | None:
    """The queue in which the prediction is tokenized; None for the event loop."""
    return work_of(len(params.prediction or ""))


def tokenize_prediction(
    params: SamplingParams, parts: ModelParts, cancel: threading.Event | None = None
) -> tuple[int, ...]:
    """Return the ids of the predicted text, none of them a control token; empty without a prediction.

    Args:
        params: with the text.
        parts: of the model.
        cancel: set when no client waits for the ids any more.

    Raises:
        LeftError: no client waits.
        BadRequestError: the text is longer than any answer.
    """
    text = params.prediction
    if not text:
        return ()
    try:
        LengthBound(parts, cancel=cancel).check_text(text)
    except EngineError:
        message = f"The prediction is longer than this model's context of {parts.max_seq_len} tokens."
        raise BadRequestError(message, "prediction", "string_above_max_length") from None
    return tuple(parts.tokenizer.encode_literal(text))


def sent_length(size: int, max_tokens: int, features: EngineFeatures) -> int:
    """The number of a prediction's tokens to send.

    The last token of an answer is never from a draft: it follows from the accepted tokens.

    Args:
        size: tokens of the prediction.
        max_tokens: of the answer, which a prediction never shortens.
        features: of the engine.
    """
    most = size if features.max_draft_tokens is None else features.max_draft_tokens
    return min(size, most, max_tokens - 1)


def draft_length(params: SamplingParams, settings: ModelSettings) -> int:
    """The tokens that the draft model proposes at a time; 0 without a draft model.

    The operator's number holds for requests without ``num_draft_tokens`` that allow a draft model.

    Raises:
        BadRequestError: the request asks for a draft model and for something that excludes one.
    """
    wanted = params.num_draft_tokens
    obstacle = _obstacle(params)
    if obstacle is None:
        return settings.speculative.num_draft_tokens or 0 if wanted is None else wanted
    if wanted:
        message = f"'num_draft_tokens' cannot be used with {obstacle}; leave it out or set it to 0."
        raise BadRequestError(message, "num_draft_tokens", "invalid_value")
    return 0


def _obstacle(params: SamplingParams) -> str | None:
    if params.guide is not None:
        return "guided decoding, such as 'response_format' or a required tool call"
    if params.beam_width > 1:
        return "'use_beam_search'"
    return None if params.prompt_logprobs is None else "'prompt_logprobs'"
