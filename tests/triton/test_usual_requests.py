"""A request is encoded as if no other had been before it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_triton import ask

from gateway.generation.engine import EngineError
from gateway.generation.request import GenerationRequest, Guide, Prompt, Sampling
from gateway.triton import EngineOptions
from gateway.triton.assembly import tokens_engine
from gateway.triton.dialects.connection import Connection
from gateway.triton.dialects.tokens import TokensEngine
from tests.triton.test_request_tensors import NoTransport, models

MODELS = models()

IDS = st.lists(st.integers(0, 3), max_size=3).map(tuple)
SOME: dict[str, st.SearchStrategy[Any]] = {
    "prompt": st.lists(st.integers(0, 9), min_size=1, max_size=5).map(lambda ids: Prompt("", tuple(ids))),
    "max_tokens": st.integers(1, 3),
    "sampling": st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.5]),
        top_p=st.sampled_from([1.0, 0.5]),
        top_k=st.integers(0, 2),
        seed=st.integers(0, 3),
        presence_penalty=st.sampled_from([0.0, 0.5]),
        min_p=st.sampled_from([0.0, 0.5]),
    ),
    "end_ids": IDS,
    "stop_ids": IDS,
    "stop": st.sampled_from([(), ("x",)]),
    "min_tokens": st.integers(0, 1),
    "logprobs": st.booleans(),
    "top_logprobs": st.integers(0, 1),
    "prompt_logprobs": st.sampled_from([None, 0, 1]),
    "bad_words": st.sampled_from([(), ((1,),), ((1, 2), (3,))]),
    "logit_bias": st.sampled_from([{}, {1: 2.0}]),
    "cached_tokens": st.booleans(),
    "guide": st.sampled_from([None, Guide("regex", "a"), Guide("regex", "b")]),
    "draft": st.sampled_from([(), (1, 2)]),
    "beam_width": st.integers(1, 2),
    "length_penalty": st.sampled_from([1.0, 0.5]),
}
REQUESTS = st.builds(ask, st.sampled_from(["r1", "r2"]), **SOME)


def direct() -> TokensEngine:
    """An engine that has encoded nothing so far."""
    return tokens_engine(Connection(NoTransport()), MODELS, "test", EngineOptions())


def encoded(engine: Any, request: GenerationRequest) -> tuple[Any, str]:
    """The message, and what was refused."""
    try:
        return engine.encode(request), ""
    except EngineError as error:
        return None, str(error)


@settings(deadline=None)
@given(st.lists(REQUESTS, min_size=2, max_size=6))
def test_whatever_came_before(requests: list[GenerationRequest]) -> None:
    engine = direct()
    for request in requests:
        assert encoded(engine, request) == encoded(direct(), request)


def test_more_kinds_of_requests_than_are_kept() -> None:
    engine = direct()
    for length in [*range(1, 200), *range(1, 200)]:
        request = ask(max_tokens=length)
        assert encoded(engine, request) == encoded(direct(), request)
