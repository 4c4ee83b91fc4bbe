"""How much is guessed of an answer: by the settings, by the request, and by what the context leaves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.config import ModelSettings
from gateway.generation import Guide
from gateway.serving.ask import Options
from gateway.serving.drafts import Draft, draft_length, fit_draft
from gateway.serving.errors import RefusedError
from tests.app.scripted import TOKENS


def settings(**speculative: Any) -> ModelSettings:
    return ModelSettings.model_validate({"name": "m", "triton": {"url": "x:1"}, "speculative": speculative})


@pytest.mark.parametrize(
    ("default", "asked", "length"), [(None, None, 0), (None, 3, 3), (5, None, 5), (5, 0, 0), (5, 8, 8)]
)
def test_a_request_has_the_last_word(default: int | None, asked: int | None, length: int) -> None:
    assert draft_length(Options(num_draft_tokens=asked), settings(num_draft_tokens=default)) == length


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"guide": Guide("json")}, "response_format"),
        ({"beam_width": 2}, "use_beam_search"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
    ],
)
def test_what_goes_with_no_draft_is_served_without_or_refused(more: dict[str, Any], named: str) -> None:
    drafted = settings(num_draft_tokens=5)
    assert draft_length(Options(**more), drafted) == draft_length(Options(num_draft_tokens=0, **more), drafted) == 0
    with pytest.raises(RefusedError, match=named) as refused:
        draft_length(Options(num_draft_tokens=2, **more), drafted)
    assert refused.value.param == "num_draft_tokens"


def test_the_operator_cannot_ask_for_more_than_the_engine_takes() -> None:
    assert settings(num_draft_tokens=8, max_draft_tokens=8).speculative.num_draft_tokens == 8
    with pytest.raises(ValidationError, match="at most max_draft_tokens"):
        settings(num_draft_tokens=9, max_draft_tokens=8)


def test_an_engine_without_a_limit_is_sent_all_of_a_prediction() -> None:
    anything = dataclasses.replace(TOKENS, max_draft_tokens=None)
    assert fit_draft((1, 2, 3), Options(max_tokens=2), anything, 2) == Draft((1, 2, 3), None, 0)


@given(
    size=st.integers(1, 40), most=st.integers(0, 40), wanted=st.none() | st.integers(1, 60), room=st.integers(-5, 60)
)
def test_a_prediction_never_shortens_an_answer(size: int, most: int, wanted: int | None, room: int) -> None:
    features = dataclasses.replace(TOKENS, max_draft_tokens=most)
    draft = fit_draft(tuple(range(size)), Options(max_tokens=wanted), features, room)
    assert draft.limit == draft.reserved
    assert 0 <= draft.reserved <= min(size, most, max(room, 0))
    assert room - draft.reserved >= min(room, room // 2 if wanted is None else wanted)
    assert len(draft.ids) == size
