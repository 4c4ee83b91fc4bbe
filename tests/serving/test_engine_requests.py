"""What an engine is asked for: how much is guessed of an answer, and seeds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.generation import EngineFeatures, SamplingParams
from gateway.serving.engine_requests import draft_length, engine_requests, engine_seed
from gateway.serving.loading import ModelParts, load_parts
from gateway.settings import ModelSettings
from gateway.text.bad_request import BadRequestError
from gateway.text.guides.guide import Guide
from gateway.text.prompt.prompt import Prompt
from tests.app.scripted import TOKENS


def settings(**speculative: Any) -> ModelSettings:
    return ModelSettings.model_validate({"name": "m", "triton": {"url": "x:1"}, "speculative": speculative})


@pytest.mark.parametrize(
    ("default", "asked", "length"), [(None, None, 0), (None, 3, 3), (5, None, 5), (5, 0, 0), (5, 8, 8)]
)
def test_a_request_has_the_last_word(default: int | None, asked: int | None, length: int) -> None:
    assert draft_length(SamplingParams(num_draft_tokens=asked), settings(num_draft_tokens=default)) == length


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
    assert (
        draft_length(SamplingParams(**more), drafted)
        == draft_length(SamplingParams(num_draft_tokens=0, **more), drafted)
        == 0
    )
    with pytest.raises(BadRequestError, match=named) as rejected:
        draft_length(SamplingParams(num_draft_tokens=2, **more), drafted)
    assert rejected.value.param == "num_draft_tokens"


def test_the_operator_cannot_ask_for_more_than_the_engine_takes() -> None:
    assert settings(num_draft_tokens=8, max_draft_tokens=8).speculative.num_draft_tokens == 8
    with pytest.raises(ValidationError, match="at most max_draft_tokens"):
        settings(num_draft_tokens=9, max_draft_tokens=8)


def planned(parts: ModelParts, predicted: tuple[int, ...], features: EngineFeatures, **options: Any) -> Any:
    (request,) = engine_requests(
        Prompt("abcd", (5, 6, 7, 8)),
        SamplingParams(**options),
        parts=parts,
        features=features,
        settings=settings(),
        request_id="r",
        predicted=predicted,
    )
    return request


@pytest.fixture(scope="module")
def parts(folder: Path) -> ModelParts:
    """Of a model with a context of 40 tokens."""
    read = ModelSettings.model_validate(
        {"name": "m", "triton": {"url": "x:1"}, "tokenizer": str(folder), "max_seq_len": 40}
    )
    return load_parts(read, None, "models[0]")


@given(
    size=st.integers(0, 60),
    most=st.none() | st.integers(0, 40),
    kept=st.integers(0, 8),
    wanted=st.none() | st.integers(1, 60),
    least=st.integers(0, 28),
)
def test_a_prediction_never_shortens_an_answer(
    parts: ModelParts, size: int, most: int | None, kept: int, wanted: int | None, least: int
) -> None:
    features = dataclasses.replace(TOKENS, max_draft_tokens=most, draft_room=kept)
    options = {"max_tokens": wanted, "min_tokens": min(least, wanted or least)}
    plain, predicted = (planned(parts, tuple(range(count)), features, **options) for count in (0, size))
    assert predicted.max_tokens == plain.max_tokens == min(40 - 4 - kept, wanted or 40)
    assert len(predicted.draft) == size
    # What can be used, for which there is room: the last token of an answer is not of a draft.
    assert predicted.draft_limit == min(size, size if most is None else most, predicted.max_tokens - 1)


def test_seeds_map_by_twos_complement() -> None:
    assert engine_seed(5) == 5
    assert engine_seed(-1) == 2**64 - 1
    assert engine_seed(-(2**63)) == 2**63


def test_no_seed_is_a_random_one() -> None:
    drawn = {engine_seed(None) for _ in range(8)}
    assert len(drawn) > 1
    assert all(0 <= seed < 2**63 for seed in drawn)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_other_numbers_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        engine_seed(seed)
