"""Common features of several engines: each engine can serve a request that they allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import get_args

from gateway.generation import EngineFeatures
from gateway.generation.engine import AdapterForm, Capability
from gateway.settings import EngineForm

_STREAMS = ("pieces", "whole", "damaged", "rejected")
_PATHS = get_args(EngineForm)
_ADAPTERS = get_args(AdapterForm)
_HOW = ("native", "emulated", "impossible")


def conflict(one: EngineFeatures, other: EngineFeatures) -> str | None:
    """Say why two engines cannot be endpoints of one served model, in one sentence; None where they can."""
    if one.task != other.task:
        return f"its task is {other.task}, but the task of the other endpoints is {one.task}"
    if None not in (one.vocab_size, other.vocab_size) and one.vocab_size != other.vocab_size:
        return (
            f"its vocabulary has {other.vocab_size} tokens, but the vocabulary of the other endpoints has "
            f"{one.vocab_size}"
        )
    if None not in (one.tokenized, other.tokenized) and one.tokenized != other.tokenized:
        return "its Triton's tokenizer differs from the tokenizer of the other endpoints"
    if not one.prompt_ids and not other.prompt_ids and one.adds_special_tokens != other.adds_special_tokens:
        return "its server adds other special tokens to a prompt than the other endpoints"
    return None


def common(each: Sequence[EngineFeatures]) -> EngineFeatures:
    """Combine the features of engines, at least one.

    Ranges are the narrowest, a capability is served in the worst of its ways, and answers may lose or estimate what any
    engine's may.
    """
    return reduce(_both, each)


def _both(one: EngineFeatures, other: EngineFeatures) -> EngineFeatures:
    same = one.path == other.path
    return dataclasses.replace(
        one,
        path=one.path if same else max(one.path, other.path, key=_PATHS.index),
        reason=one.reason if one.reason == other.reason else f"{one.reason} Other endpoints: {other.reason}",
        token_ids=one.token_ids and other.token_ids,
        prompt_ids=one.prompt_ids and other.prompt_ids,
        logprobs=one.logprobs and other.logprobs,
        max_top_logprobs=min(one.max_top_logprobs, other.max_top_logprobs),
        max_seq_len=_least(one.max_seq_len, other.max_seq_len),
        vocab_size=one.vocab_size or other.vocab_size,
        tokenizer_dir=one.tokenizer_dir or other.tokenizer_dir,
        tokenized=one.tokenized or other.tokenized,
        warnings=tuple(dict.fromkeys((*one.warnings, *other.warnings))),
        capabilities=_capabilities(one.capabilities, other.capabilities),
        guide_types=one.guide_types & other.guide_types,
        guide_backend=one.guide_backend if one.guide_backend == other.guide_backend else None,
        max_draft_tokens=_least(one.max_draft_tokens, other.max_draft_tokens),
        draft_room=max(one.draft_room, other.draft_room),
        adds_special_tokens=one.adds_special_tokens or other.adds_special_tokens,
        hides_special_tokens=one.hides_special_tokens or other.hides_special_tokens,
        ends_at_eos=one.ends_at_eos or other.ends_at_eos,
        adapters=max(one.adapters, other.adapters, key=_ADAPTERS.index),
        streams=max(one.streams, other.streams, key=_STREAMS.index),
        whole=one.whole or other.whole,
        estimates=one.estimates | other.estimates,
        most_items=min(one.most_items, other.most_items),
        one_query=one.one_query or other.one_query,
        losses={**one.losses, **other.losses},
    )


def _least(one: int | None, other: int | None) -> int | None:
    """Return the smaller of two limits; None: unlimited."""
    given = [each for each in (one, other) if each is not None]
    return min(given, default=None)


def _capabilities(one: Mapping[str, Capability], other: Mapping[str, Capability]) -> dict[str, Capability]:
    merged = {}
    for name in {**one, **other}:
        given = [each[name] for each in (one, other) if name in each]
        worst = max(given, key=lambda each: _HOW.index(each.how))
        truncated = next((each.truncated for each in given if each.truncated), "")
        limit = _least(*(each.limit for each in (given * 2)[:2]))
        merged[name] = dataclasses.replace(worst, limit=limit, truncated=truncated)
    return merged
