"""A request is encoded as if no other had been before it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from scripted_triton import NoTransport, ask, models

from gateway.generation import SamplingParams
from gateway.generation.engine import EngineError
from gateway.generation.request import GenerationRequest
from gateway.text.guides.guide import Guide
from gateway.text.prompt.prompt import Prompt
from gateway.triton import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.tokens import TokensDialect, TokensEngine

MODELS = models()
VALUES: dict[str, list[Any]] = {
    "id": ["r1", "r2"],
    "prompt": [Prompt("", (1,)), Prompt("", (1, 2)), Prompt("", (2, 1))],
    "max_tokens": [1, 2],
    "end_ids": [(), (1,), (1, 2)],
    "end_texts": [(), ("a",)],
    "bad_word_ids": [(), ((1,),), ((1, 2), (3,))],
    "seed": [0, 1],
    "cached_tokens": [False, True],
    "vocab_size": [None, 100],
    "lora": [None],
    "prompt_table": [None],
    "draft": [(), (1,), (2, 3)],
    "draft_limit": [None, 1],
    "num_draft_tokens": [0, 1],
    "use_draft_logits": [False, True],
    "traceparent": [None, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
}
PARAMS: dict[str, list[Any]] = {
    "temperature": [0.0, 0.5, 0.7],
    "top_p": [1.0, 0.5],
    "top_k": [0, 1, 2],
    "presence_penalty": [0.0, 0.5],
    "frequency_penalty": [0.0, 0.5],
    "repetition_penalty": [1.0, 1.5],
    "min_p": [0.0, 0.5],
    "logprobs": [False, True],
    "top_logprobs": [0, 1],
    "min_tokens": [0, 1],
    "stop_token_ids": [(), (1,), (2,)],
    "logit_bias": [{}, {1: 2.0}, {1: 3.0}],
    "beam_width": [1, 2],
    "length_penalty": [1.0, 0.5],
    "prompt_logprobs": [None, 0, 1],
    "guide": [None, Guide("regex", "a"), Guide("regex", "b"), Guide("json")],
    "cache_salt": [None, "x", "y"],
    # These are the gateway's own, or travel by other fields of the request.
    "priority": [0, 1],
    "bad_words": [(), ("x",)],
    "end_ids": [(), (1,)],
    "ignore_eos": [False, True],
    "stream": [False, True],
    "include_stop_str_in_output": [False, True],
    "max_tokens": [None, 1],
    "clamp_max_tokens": [False, True],
    "max_tokens_name": ["max_tokens", "max_completion_tokens"],
    "n": [1, 2],
    "num_draft_tokens": [None, 1],
    "prediction": [None, "a"],
    "prompt_table": [None, "a"],
    "return_token_ids": [False, True],
    "seed": [None, 1],
    "skip_special_tokens": [False, True],
    "stop": [(), ("x",)],
    "most_stops": [4, 64],
    "thinking_token_budget": [None, 5],
    "visible_ids": [frozenset(), frozenset({1})],
}
BASES = [
    ask(),
    ask(params=SamplingParams(temperature=0.5)),
    ask(logprobs=True, vocab_size=100),
    ask(beam_width=2, draft=(1, 2)),
]


def fresh() -> TokensEngine:
    """An engine that has encoded nothing so far."""
    return TokensDialect().make(Connection(NoTransport()), MODELS, "test", EngineOptions())


def encoded(engine: TokensEngine, request: GenerationRequest) -> tuple[Any, str]:
    """The message, and what was refused."""
    try:
        return engine.encode(request), ""
    except EngineError as error:
        return None, str(error)


def check(first: GenerationRequest, second: GenerationRequest) -> None:
    engine = fresh()
    encoded(engine, first)
    assert encoded(engine, second) == encoded(fresh(), second)


def test_every_field_is_looked_at() -> None:
    assert VALUES.keys() | {"params"} == {field.name for field in dataclasses.fields(GenerationRequest)}
    assert PARAMS.keys() == {field.name for field in dataclasses.fields(SamplingParams)}


@pytest.mark.parametrize("name", VALUES)
def test_after_one_that_differs_in_a_field(name: str) -> None:
    for base in BASES:
        requests = [dataclasses.replace(base, **{name: value}) for value in VALUES[name]]
        for first in requests:
            for second in requests:
                check(first, second)


@pytest.mark.parametrize("name", PARAMS)
def test_after_one_that_differs_in_its_params(name: str) -> None:
    for base in BASES:
        drawn = [dataclasses.replace(base.params, **{name: value}) for value in PARAMS[name]]
        for first in drawn:
            for second in drawn:
                check(dataclasses.replace(base, params=first), dataclasses.replace(base, params=second))


def test_more_kinds_of_requests_than_are_kept() -> None:
    engine = fresh()
    for length in [*range(200), *range(200)]:
        request = ask(min_tokens=length)
        assert encoded(engine, request) == encoded(fresh(), request)
