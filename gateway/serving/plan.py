"""From a prompt and options to the requests that an engine is given."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from gateway.config import ModelSettings
from gateway.generation import EngineError, EngineFeatures, ErrorKind, GenerationRequest, Prompt
from gateway.generation.additions import PromptTable
from gateway.ids import new_id
from gateway.serving.ask import Options
from gateway.serving.drafts import draft_length, sent_length
from gateway.serving.errors import RefusedError
from gateway.serving.loading import ModelParts
from gateway.serving.prompts import check_ids
from gateway.tokens import word_sequences

_SEEDS = 2**64
_END = 100.0  # the ends of a bias in OpenAI's range
_ABSOLUTE = 1e4  # no logit outweighs it, and beside it differences between logits still count in FP32
_UNSUPPORTED = "unsupported_parameter"


def plan(
    prompt: Prompt,
    options: Options,
    *,
    parts: ModelParts,
    features: EngineFeatures,
    settings: ModelSettings,
    request_id: str,
    predicted: tuple[int, ...] = (),
) -> list[GenerationRequest]:
    """The ``options.n`` requests for one prompt, which they share; request ``i`` has the seed plus ``i``.

    ``predicted`` are the ids of ``options.prediction``.

    Raises:
        EngineError: CONTEXT_LENGTH when the prompt leaves no room for an answer.
        RefusedError: when the engine or the operator's limits do not allow what is asked.
    """
    _check(options, parts, features, settings)
    ids = (f"{request_id}-{new_id()}" for _ in range(options.n))
    first = _first(next(ids), prompt, options, parts, features, settings, predicted)
    seed = options.sampling.seed
    return [first] + [
        dataclasses.replace(
            first, id=request, sampling=dataclasses.replace(options.sampling, seed=(seed + index) % _SEEDS)
        )
        for index, request in enumerate(ids, 1)
    ]


def _first(
    request_id: str,
    prompt: Prompt,
    options: Options,
    parts: ModelParts,
    features: EngineFeatures,
    settings: ModelSettings,
    predicted: tuple[int, ...],
) -> GenerationRequest:
    """The first request for one prompt; the others differ in id and seed."""
    table = _table(options, parts)
    length = parts.max_seq_len - (table.length if table else 0) - features.draft_room
    max_tokens = _room(prompt, options, length, settings)
    end_ids = () if options.ignore_eos else tuple(dict.fromkeys(parts.end_ids + options.end_ids))
    return GenerationRequest(
        id=request_id,
        prompt=prompt,
        max_tokens=max_tokens,
        sampling=options.sampling,
        end_ids=end_ids,
        end_texts=tuple(map(parts.tokenizer.token_text, end_ids)),
        stop=options.stop,
        logprobs=options.logprobs,
        top_logprobs=options.top_logprobs,
        min_tokens=options.min_tokens,
        stop_ids=options.stop_token_ids,
        bad_words=tuple(ids for word in options.bad_words for ids in word_sequences(parts.tokenizer, word)),
        bad_texts=options.bad_words,
        logit_bias=_bias(options.logit_bias),
        beam_width=options.beam_width,
        length_penalty=options.length_penalty,
        include_stop=options.include_stop_str_in_output,
        prompt_logprobs=options.prompt_logprobs,
        cached_tokens=True,
        vocab_size=features.vocab_size or parts.tokenizer.logits_size,
        guide=options.guide,
        prompt_table=table,
        draft=predicted,
        draft_limit=sent_length(len(predicted), max_tokens, features),
        num_draft_tokens=draft_length(options, settings),
        cache_salt=options.cache_salt,
        use_draft_logits=settings.speculative.use_draft_logits,
    )


def _check(options: Options, parts: ModelParts, features: EngineFeatures, settings: ModelSettings) -> None:
    if len(options.stop) > settings.max_stops:
        message = f"At most {settings.max_stops} stop strings are supported, but {len(options.stop)} were given."
        raise RefusedError(message, "stop", "array_above_max_length")
    if options.logprobs and not features.logprobs:
        raise RefusedError("This model's engine gives no log-probabilities.", "logprobs", _UNSUPPORTED)
    most = min(features.max_top_logprobs, settings.max_top_logprobs)
    if options.top_logprobs > most:
        what = f"at most {most}" if most else "no"
        raise RefusedError(f"This model gives {what} alternatives per token.", "top_logprobs", _UNSUPPORTED)
    check_ids(list(options.logit_bias), parts, "logit_bias.{id}")
    check_ids(options.stop_token_ids, parts, "stop_token_ids[{place}]")


def _table(options: Options, parts: ModelParts) -> PromptTable | None:
    if options.prompt_table is None:
        return None
    table = parts.prompt_tables.get(options.prompt_table)
    if table is None:
        known = f"it has {', '.join(sorted(parts.prompt_tables))}" if parts.prompt_tables else "it has none"
        message = f"This model has no prompt table of the name {options.prompt_table!r}; {known}."
        raise RefusedError(message, "prompt_table", "invalid_value")
    return table


def _bias(wanted: Mapping[int, float]) -> Mapping[int, float]:
    """The bias with its ends made absolute: -100 is never and 100 is always, whatever the logits."""
    return {index: math.copysign(_ABSOLUTE, bias) if abs(bias) >= _END else bias for index, bias in wanted.items()}


def _room(prompt: Prompt, options: Options, max_seq_len: int, settings: ModelSettings) -> int:
    """Tokens that may be generated: what is wanted, within what the context leaves."""
    length = len(prompt.ids)
    room = max_seq_len - length
    if room < 1:
        raise EngineError(
            ErrorKind.CONTEXT_LENGTH,
            f"This model's maximum context length is {max_seq_len} tokens, but the prompt has {length} tokens and an"
            " answer needs at least one more; shorten the prompt.",
        )
    wanted = options.max_tokens
    if wanted is not None and wanted > room and settings.max_tokens_policy == "refuse":
        raise RefusedError(
            f"This model's maximum context length is {max_seq_len} tokens, but {length + wanted} are asked for:"
            f" {length} of the prompt and {wanted} of the answer; ask for at most {room}.",
            options.max_tokens_name,
            "context_length_exceeded",
        )
    limit = room if wanted is None else min(wanted, room)
    if options.min_tokens > limit:
        message = f"'min_tokens' must be at most the {limit} tokens that the answer may have."
        raise RefusedError(message, "min_tokens", "invalid_value")
    return limit
