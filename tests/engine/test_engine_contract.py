"""The warts of TensorRT-LLM that the engine reproduces, one test each (wire contract 1.3, 1.4, 2 and 3)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from cpu_double.reference_engine import ReferenceEngine
from wire.request import RejectedError, Request, Sampling
from wire.response import Response

MakeEngine = Callable[..., ReferenceEngine]
Generate = Callable[..., list[Response]]
PROMPT = [20, 21, 22, 23]


@pytest.fixture(scope="module")
def greedy(generate: Generate) -> list[int]:
    """Six greedy tokens after PROMPT, all different."""
    ids = generate(Request("", PROMPT, 6))[0].ids
    assert len(set(ids)) == 6
    return ids


def _sample(generate: Generate, seed: int, **sampling: object) -> list[int]:
    return generate(Request("", PROMPT, 6, sampling=Sampling(seed=seed, **sampling)))[0].ids  # type: ignore[arg-type]


def test_without_top_k_and_top_p_a_temperature_alone_is_greedy(generate: Generate, greedy: list[int]) -> None:
    assert _sample(generate, 1, temperature=5.0) == greedy
    assert _sample(generate, 2, temperature=5.0, top_k=0, top_p=0.0) == greedy
    assert _sample(generate, 3, temperature=5.0, top_p=-1.0) == greedy


def test_top_p_one_samples(generate: Generate, greedy: list[int]) -> None:
    assert len({tuple(_sample(generate, seed, temperature=5.0, top_p=1.0)) for seed in range(5)}) == 5


def test_temperature_zero_with_top_p_alone_samples_at_one(generate: Generate, greedy: list[int]) -> None:
    trapped = [_sample(generate, seed, temperature=0.0, top_p=0.001) for seed in range(5)]
    assert trapped == [_sample(generate, seed, temperature=1.0, top_p=1.0) for seed in range(5)]
    assert len({tuple(ids) for ids in trapped}) > 1


def test_temperature_zero_with_top_k_is_greedy(generate: Generate, greedy: list[int]) -> None:
    assert _sample(generate, 1, temperature=0.0, top_k=50, top_p=0.9) == greedy
    assert _sample(generate, 1, temperature=0.0) == greedy


def test_a_tiny_temperature_is_greedy_and_not_a_failure(generate: Generate, greedy: list[int]) -> None:
    assert _sample(generate, 1, temperature=1e-45, top_p=1.0) == greedy


def test_top_k_one_is_greedy_at_any_temperature(generate: Generate, greedy: list[int]) -> None:
    assert _sample(generate, 1, temperature=100.0, top_k=1, top_p=1.0) == greedy


def test_a_seed_reproduces_and_another_differs(generate: Generate) -> None:
    hot = {"temperature": 3.0, "top_p": 1.0}
    assert _sample(generate, 2**64 - 1, **hot) == _sample(generate, 2**64 - 1, **hot)
    assert _sample(generate, 1, **hot) != _sample(generate, 2, **hot)


def _first_tokens(generate: Generate, **sampling: object) -> Counter[int]:
    return Counter(
        generate(Request("", PROMPT, 1, sampling=Sampling(seed=seed, **sampling)))[0].ids[0]  # type: ignore[arg-type]
        for seed in range(400)
    )


@pytest.fixture(scope="module")
def first_distribution(generate: Generate) -> dict[int, float]:
    (answer,) = generate(Request("", PROMPT, 1, top_log_probs=20))
    return {token: float(np.exp(value)) for token, value in answer.top_log_probs[0]}


def test_frequencies_follow_the_distribution(generate: Generate, first_distribution: dict[int, float]) -> None:
    drawn = _first_tokens(generate, top_p=1.0)
    for token, probability in itertools.islice(first_distribution.items(), 3):
        deviation = (probability * (1 - probability) / 400) ** 0.5
        assert abs(drawn[token] / 400 - probability) < 5 * deviation


def test_top_k_keeps_k_candidates(generate: Generate, first_distribution: dict[int, float]) -> None:
    assert set(_first_tokens(generate, temperature=10.0, top_k=3)) == set(list(first_distribution)[:3])


def test_top_p_keeps_the_shortest_nucleus(generate: Generate, first_distribution: dict[int, float]) -> None:
    mass = np.cumsum(list(first_distribution.values()))
    nucleus = (mass[1] + mass[2]) / 2
    assert set(_first_tokens(generate, top_p=float(nucleus))) == set(list(first_distribution)[:3])


def test_a_nucleus_shrinks_by_its_decay_down_to_its_least_until_it_is_reset(generate: Generate) -> None:
    hot: dict[str, object] = {"temperature": 10.0, "top_p": 1.0}

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


def test_end_id_ends_and_is_not_in_the_output(generate: Generate, greedy: list[int]) -> None:
    *tokens, last = generate(Request("", PROMPT, 6, end_id=greedy[2], streaming=True))
    assert [response.ids for response in tokens] == [[greedy[0]], [greedy[1]]]
    assert (last.ids, last.final, last.finish) == ([], True, "stop")
    (whole,) = generate(Request("", PROMPT, 6, end_id=greedy[2]))
    assert (whole.ids, whole.finish) == (greedy[:2], "stop")


def test_without_end_id_nothing_ends_it_but_the_length(generate: Generate, greedy: list[int]) -> None:
    (answer,) = generate(Request("", PROMPT, 6, end_id=-1))
    assert (answer.ids, answer.finish) == (greedy, "length")


def test_the_last_token_carries_the_final_mark(generate: Generate, greedy: list[int]) -> None:
    responses = generate(Request("", PROMPT, 6, streaming=True))
    assert [response.ids for response in responses] == [[token] for token in greedy]
    assert [response.final for response in responses] == [False] * 5 + [True]


def test_min_tokens_suppresses_end_id_but_not_stop_words(generate: Generate, greedy: list[int]) -> None:
    sampling = Sampling(min_tokens=4)
    (answer,) = generate(Request("", PROMPT, 6, end_id=greedy[2], sampling=sampling))
    assert len(answer.ids) >= 4
    assert greedy[2] not in answer.ids
    (stopped,) = generate(Request("", PROMPT, 6, stop_words=((greedy[2],),), sampling=sampling))
    assert stopped.ids == greedy[:3]


def test_stop_words_end_and_stay_in_the_output(generate: Generate, greedy: list[int]) -> None:
    never = (greedy[3], greedy[1])
    (answer,) = generate(Request("", PROMPT, 6, stop_words=(never, (greedy[2], greedy[3]))))
    assert (answer.ids, answer.finish) == (greedy[:4], "stop")


def test_a_stop_word_longer_than_everything_does_not_match_its_tail(generate: Generate, greedy: list[int]) -> None:
    word = (99, *PROMPT, *greedy[:2])
    assert generate(Request("", PROMPT, 6, stop_words=(word,)))[0].ids == greedy


def test_a_stop_word_at_the_length_limit_is_a_stop(generate: Generate, greedy: list[int]) -> None:
    (answer,) = generate(Request("", PROMPT, 3, stop_words=((greedy[2],),)))
    assert (answer.ids, answer.finish) == (greedy[:3], "stop")


def test_bad_words_are_never_completed(generate: Generate, greedy: list[int]) -> None:
    single = generate(Request("", PROMPT, 6, sampling=Sampling(bad_words=((greedy[0],),))))[0].ids
    assert greedy[0] not in single
    pair = generate(Request("", PROMPT, 6, sampling=Sampling(bad_words=((greedy[0], greedy[1]),))))[0].ids
    assert pair[0] == greedy[0]
    assert pair[1] != greedy[1]
    elsewhere = ((greedy[3], greedy[1]), (greedy[4], greedy[0], greedy[1]))
    assert generate(Request("", PROMPT, 6, sampling=Sampling(bad_words=elsewhere)))[0].ids == greedy
    spanning = generate(Request("", PROMPT, 1, sampling=Sampling(bad_words=((PROMPT[-1], greedy[0]),))))[0].ids
    assert spanning != greedy[:1]


def test_an_embedding_bias_forces_and_forbids(generate: Generate, greedy: list[int], make_engine: MakeEngine) -> None:
    bias = np.zeros(make_engine().vocab_size, np.float32)
    bias[77] = 1000
    assert generate(Request("", PROMPT, 3, sampling=Sampling(bias=bias)))[0].ids == [77, 77, 77]
    assert (
        greedy[0]
        not in generate(
            Request("", PROMPT, 3, sampling=Sampling(bias=np.eye(267, dtype=np.float32)[greedy[0]] * -1e9))
        )[0].ids
    )


def test_penalties_count_the_prompt(generate: Generate, greedy: list[int], make_engine: MakeEngine) -> None:
    logits_of = greedy[0]
    prompt = [logits_of, *PROMPT]
    (plain,) = generate(Request("", prompt, 1, top_log_probs=20))
    seen = {logits_of, *PROMPT}
    for name, value in (("presence_penalty", 3.0), ("frequency_penalty", 3.0)):
        (answer,) = generate(Request("", prompt, 1, top_log_probs=20, sampling=Sampling(**{name: value})))
        before, after = dict(plain.top_log_probs[0]), dict(answer.top_log_probs[0])
        unseen = [token for token in before if token in after and token not in seen]
        shift = after[unseen[0]] - before[unseen[0]]
        for token in seen & set(before) & set(after):
            assert after[token] - before[token] == pytest.approx(shift - 3.0, abs=1e-6)
        assert all(after[token] - before[token] == pytest.approx(shift, abs=1e-6) for token in unseen)


def test_frequency_penalty_grows_with_occurrences(generate: Generate, make_engine: MakeEngine) -> None:
    bias = np.zeros(make_engine().vocab_size, np.float32)
    bias[77] = 1000
    sampling = Sampling(bias=bias, frequency_penalty=400.0)
    ids = generate(Request("", PROMPT, 4, sampling=sampling))[0].ids
    assert ids[:3] == [77, 77, 77]
    assert ids[3] != 77


def test_repetition_penalty_divides_positive_and_multiplies_negative(
    generate: Generate, make_engine: MakeEngine
) -> None:
    vocab = make_engine().vocab_size
    for bias_value in (1000.0, -1000.0):
        bias = np.full(vocab, bias_value, np.float32)
        plain = generate(Request("", [77], 1, top_log_probs=20, sampling=Sampling(bias=bias)))[0]
        sampling = Sampling(bias=bias, repetition_penalty=2.0)
        answer = generate(Request("", [77], 1, top_log_probs=20, sampling=sampling))[0]
        assert 77 not in dict(answer.top_log_probs[0])
        assert [t for t, _ in plain.top_log_probs[0] if t != 77][:19] == [t for t, _ in answer.top_log_probs[0]][:19]


def test_the_output_length_is_clamped_in_silence(generate: Generate, make_engine: MakeEngine) -> None:
    (answer,) = generate(Request("", [30] * 90, 1000), make_engine(max_seq_len=100))
    assert (len(answer.ids), answer.finish) == (10, "length")


def test_an_over_long_prompt_is_refused_in_the_engines_words(make_engine: MakeEngine) -> None:
    engine = make_engine(max_seq_len=100)
    with pytest.raises(RejectedError, match=r"Prompt length \(100\) exceeds maximum input length \(99\)"):
        engine.submit(Request("", [30] * 100, 1))
    engine.submit(Request("", [30] * 99, 1))


def test_the_prompt_is_echoed_only_when_not_streaming(generate: Generate, greedy: list[int]) -> None:
    (answer,) = generate(Request("", PROMPT, 6, echo=True))
    assert answer.ids == PROMPT + greedy
    assert generate(Request("", PROMPT, 6, echo=True, streaming=True))[0].ids == greedy[:1]


def test_log_probs_are_cumulative_when_streaming(generate: Generate) -> None:
    (whole,) = generate(Request("", PROMPT, 6, log_probs=True))
    streamed = generate(Request("", PROMPT, 6, log_probs=True, streaming=True))
    for count, response in enumerate(streamed, 1):
        assert response.log_probs == pytest.approx(whole.log_probs[:count])
        assert response.cum_log_prob == pytest.approx(sum(whole.log_probs[:count]))
    assert all(value < 0 for value in whole.log_probs)


def test_normalised_log_probs_are_zero_when_greedy(generate: Generate, make_engine: MakeEngine) -> None:
    (answer,) = generate(Request("", PROMPT, 6, log_probs=True), make_engine(normalize_log_probs=True))
    assert answer.log_probs == [0.0] * 6


def test_normalised_log_probs_cover_the_survivors(
    generate: Generate, make_engine: MakeEngine, first_distribution: dict[int, float]
) -> None:
    sampling = Sampling(top_k=2, seed=3)
    (answer,) = generate(
        Request("", PROMPT, 1, log_probs=True, sampling=sampling), make_engine(normalize_log_probs=True)
    )
    two = sum(list(first_distribution.values())[:2])
    assert np.exp(answer.log_probs[0]) == pytest.approx(first_distribution[answer.ids[0]] / two, rel=1e-4)


def test_log_probs_are_after_temperature(generate: Generate) -> None:
    cold = generate(Request("", PROMPT, 1, top_log_probs=2))[0].top_log_probs[0]
    hot = generate(Request("", PROMPT, 1, top_log_probs=2, sampling=Sampling(temperature=2.0)))[0].top_log_probs[0]
    assert hot[0][1] - hot[1][1] == pytest.approx((cold[0][1] - cold[1][1]) / 2, rel=1e-5)


def test_top_log_probs_are_sorted_and_hold_the_greedy_token(generate: Generate, greedy: list[int]) -> None:
    streamed = generate(Request("", PROMPT, 6, log_probs=True, top_log_probs=5, streaming=True))
    for response, token in zip(streamed, greedy, strict=True):
        ((best, *rest),) = response.top_log_probs
        assert best == (token, response.log_probs[-1])
        assert [value for _, value in rest] == sorted((value for _, value in rest), reverse=True)
        assert len(rest) == 4
    (whole,) = generate(Request("", PROMPT, 6, top_log_probs=5))
    assert [top[0][0] for top in whole.top_log_probs] == greedy


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
def test_invalid_requests_are_refused_by_name(make_engine: MakeEngine, request_: Request, named: str) -> None:
    with pytest.raises(RejectedError, match=named):
        make_engine().submit(request_)
