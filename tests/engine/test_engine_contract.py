"""The warts of TensorRT-LLM that the engine reproduces (wire contract 1.3, 1.4, 2 and 3)."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from wire.request import RejectedError, Request, Sampling

PROMPT = [20, 21, 22, 23]


@pytest.fixture(scope="module")
def greedy(generate) -> list[int]:
    """Six greedy tokens after PROMPT, all different."""
    ids = generate(Request("", PROMPT, 6))[0].ids
    assert len(set(ids)) == 6
    return ids


def _sample(generate: Any, seed: int, count: int = 6, **sampling: Any) -> list[int]:
    return generate(Request("", PROMPT, count, sampling=Sampling(seed=seed, **sampling)))[0].ids


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 5.0},
        {"temperature": 5.0, "top_k": 0, "top_p": 0.0},
        {"temperature": 5.0, "top_p": -1.0},
        {"temperature": 0.0},
        {"temperature": 0.0, "top_k": 50, "top_p": 0.9},
        {"temperature": 1e-45, "top_p": 1.0},
        {"temperature": 100.0, "top_k": 1, "top_p": 1.0},
    ],
    ids=str,
)
def test_what_is_greedy(generate, greedy, sampling) -> None:
    assert [_sample(generate, seed, **sampling) for seed in (1, 2)] == [greedy, greedy]


def test_top_p_one_samples_as_its_seed_says(generate) -> None:
    hot = {"temperature": 5.0, "top_p": 1.0}
    assert len({tuple(_sample(generate, seed, **hot)) for seed in range(5)}) == 5
    assert _sample(generate, 2**64 - 1, **hot) == _sample(generate, 2**64 - 1, **hot)


def test_temperature_zero_with_top_p_alone_samples_at_one(generate) -> None:
    trapped = [_sample(generate, seed, temperature=0.0, top_p=0.001) for seed in range(5)]
    assert trapped == [_sample(generate, seed, temperature=1.0, top_p=1.0) for seed in range(5)]
    assert len({tuple(ids) for ids in trapped}) > 1


def _first_tokens(generate: Any, **sampling: Any) -> Counter[int]:
    return Counter(_sample(generate, seed, 1, **sampling)[0] for seed in range(400))


@pytest.fixture(scope="module")
def first_distribution(generate) -> dict[int, float]:
    (answer,) = generate(Request("", PROMPT, 1, top_log_probs=20))
    return {token: float(np.exp(value)) for token, value in answer.top_log_probs[0]}


def test_draws_follow_the_distribution_and_are_among_its_best(generate, first_distribution) -> None:
    drawn = _first_tokens(generate, top_p=1.0)
    for token, probability in itertools.islice(first_distribution.items(), 3):
        deviation = (probability * (1 - probability) / 400) ** 0.5
        assert abs(drawn[token] / 400 - probability) < 5 * deviation
    best = set(list(first_distribution)[:3])
    assert set(_first_tokens(generate, temperature=10.0, top_k=3)) == best
    mass = np.cumsum(list(first_distribution.values()))
    assert set(_first_tokens(generate, top_p=float((mass[1] + mass[2]) / 2))) == best


def test_a_nucleus_shrinks_by_its_decay_down_to_its_least_until_it_is_reset(generate) -> None:
    hot: dict[str, Any] = {"temperature": 10.0, "top_p": 1.0}

    def second(first: int, **decay: float) -> set[int]:
        """What follows a token, over seeds."""
        answers = [_sample(generate, seed, **hot, **decay) for seed in range(150)]
        return {ids[1] for ids in answers if ids[0] == first}

    first = Counter(_sample(generate, seed, **hot)[0] for seed in range(150)).most_common(1)[0][0]
    (best,) = second(first, top_p_decay=1e-6)
    assert best == generate(Request("", [*PROMPT, first], 1))[0].ids[0]
    free = second(first)
    assert len(free) > 1
    assert second(first, top_p_decay=1e-6, top_p_min=1.0) == free
    assert second(first, top_p_decay=1e-6, top_p_reset_id=first) == free
    assert second(first, top_p_decay=1.0) == free


def test_ends(generate, greedy) -> None:
    def ended(count: int = 6, **more: Any) -> tuple[list[int], str]:
        (answer,) = generate(Request("", PROMPT, count, **more))
        return answer.ids, answer.finish

    assert ended(end_id=greedy[2]) == (greedy[:2], "stop")
    assert ended(end_id=-1) == (greedy, "length")
    # Stop words stay in the output; only the whole word ends it, also at the limit.
    assert ended(stop_words=((greedy[3], greedy[1]), (greedy[2], greedy[3]))) == (greedy[:4], "stop")
    assert ended(stop_words=((99, *PROMPT, *greedy[:2]),)) == (greedy, "length")
    assert ended(3, stop_words=((greedy[2],),)) == (greedy[:3], "stop")
    late, _ = ended(end_id=greedy[2], sampling=Sampling(min_tokens=4))
    assert len(late) >= 4
    assert greedy[2] not in late
    assert ended(stop_words=((greedy[2],),), sampling=Sampling(min_tokens=4)) == (greedy[:3], "stop")


def test_the_last_response_carries_the_final_mark(generate, greedy) -> None:
    responses = generate(Request("", PROMPT, 6, streaming=True))
    assert [response.ids for response in responses] == [[token] for token in greedy]
    assert [response.final for response in responses] == [False] * 5 + [True]
    *tokens, last = generate(Request("", PROMPT, 6, end_id=greedy[2], streaming=True))
    assert [response.ids for response in tokens] == [[greedy[0]], [greedy[1]]]
    assert (last.ids, last.final, last.finish) == ([], True, "stop")


def test_bad_words_are_never_completed(generate, greedy) -> None:
    def without(*words: tuple[int, ...]) -> list[int]:
        return generate(Request("", PROMPT, 6, sampling=Sampling(bad_words=words)))[0].ids

    assert greedy[0] not in without((greedy[0],))
    pair = without((greedy[0], greedy[1]))
    assert pair[0] == greedy[0]
    assert pair[1] != greedy[1]
    assert without((greedy[3], greedy[1]), (greedy[4], greedy[0], greedy[1])) == greedy
    assert without((PROMPT[-1], greedy[0]))[0] != greedy[0]


def _biased(vocab: int, value: float, token: int = 77) -> Any:
    return np.eye(vocab, dtype=np.float32)[token] * value


def test_an_embedding_bias_forces_and_forbids_and_penalties_act_on_it(generate, greedy, make_engine) -> None:
    vocab = make_engine().vocab_size

    def said(bias: Any, **more: Any) -> list[int]:
        return generate(Request("", PROMPT, 4, sampling=Sampling(bias=bias, **more)))[0].ids

    assert said(_biased(vocab, 1000)) == [77] * 4
    assert greedy[0] not in said(_biased(vocab, -1e9, greedy[0]))
    ids = said(_biased(vocab, 1000), frequency_penalty=400.0)  # it grows with occurrences
    assert ids[:3] == [77, 77, 77]
    assert ids[3] != 77


def test_the_output_length_is_clamped_in_silence(generate, make_engine) -> None:
    (answer,) = generate(Request("", [30] * 90, 1000), make_engine(max_seq_len=100))
    assert (len(answer.ids), answer.finish) == (10, "length")


def test_an_over_long_prompt_is_refused_in_the_engines_words(make_engine) -> None:
    engine = make_engine(max_seq_len=100)
    with pytest.raises(RejectedError, match=r"Prompt length \(100\) exceeds maximum input length \(99\)"):
        engine.submit(Request("", [30] * 100, 1))
    engine.submit(Request("", [30] * 99, 1))


def test_the_prompt_is_echoed_only_when_not_streaming(generate, greedy) -> None:
    (answer,) = generate(Request("", PROMPT, 6, echo=True))
    assert answer.ids == PROMPT + greedy
    assert generate(Request("", PROMPT, 6, echo=True, streaming=True))[0].ids == greedy[:1]


def test_log_probs_are_cumulative_when_streaming(generate) -> None:
    (whole,) = generate(Request("", PROMPT, 6, log_probs=True))
    streamed = generate(Request("", PROMPT, 6, log_probs=True, streaming=True))
    for count, response in enumerate(streamed, 1):
        assert response.log_probs == pytest.approx(whole.log_probs[:count])
        assert response.cum_log_prob == pytest.approx(sum(whole.log_probs[:count]))
    assert all(value < 0 for value in whole.log_probs)


def test_normalised_log_probs_are_zero_when_greedy(generate, make_engine) -> None:
    (answer,) = generate(Request("", PROMPT, 6, log_probs=True), make_engine(normalize_log_probs=True))
    assert answer.log_probs == [0.0] * 6


def test_normalised_log_probs_cover_the_survivors(generate, make_engine, first_distribution) -> None:
    sampling = Sampling(top_k=2, seed=3)
    (answer,) = generate(
        Request("", PROMPT, 1, log_probs=True, sampling=sampling), make_engine(normalize_log_probs=True)
    )
    two = sum(list(first_distribution.values())[:2])
    assert np.exp(answer.log_probs[0]) == pytest.approx(first_distribution[answer.ids[0]] / two, rel=1e-4)


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (Request("", [], 5), "input_ids"),
        (Request("", [-1], 5), "input_ids"),
        (Request("", [100_000], 5), "input_ids"),
        (Request("", PROMPT, 0), "request_output_len"),
        (Request("", PROMPT, 5, end_id=100_000), "end_id"),
        (Request("", PROMPT, 5, sampling=Sampling(bias=np.zeros(7, np.float32))), "embedding_bias"),
        (Request("", PROMPT, 5, sampling=Sampling(bad_words=((100_000,),))), "bad_words_list"),
    ],
)
def test_invalid_requests_are_refused_by_name(make_engine, request_, named) -> None:
    with pytest.raises(RejectedError, match=named):
        make_engine().submit(request_)
