"""Draft tokens save steps and never change what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_double.kv_cache import BLOCK
from cpu_double.reference_engine import PREFILL_TOKENS, Limits, ReferenceEngine
from cpu_double.sampler import Guess, Sampler
from tests.engine.alone import drain
from tests.engine.tensors import read
from tests.rings import examples
from wire.outputs import to_tensors
from wire.request import Draft, RejectedError, Request, Sampling
from wire.response import Response

PROMPT = [20, 21, 22, 23]
LOGITS = {"draft_input_ids": np.array([[8]], np.int32), "draft_logits": np.ones((1, 1, 4), np.float32)}


@pytest.fixture(scope="module")
def greedy(generate) -> list[int]:
    return generate(Request("", PROMPT, 12))[0].ids


def _ask(engine: Any, generate: Any, draft: list[int], count: int = 12, **more: Any) -> tuple[Response, int]:
    """The last response and the steps it took."""
    before = engine.stats().iteration
    request = Request("", PROMPT, count, draft=Draft(tuple(draft)), perf_metrics=True, **more)
    responses = generate(request, engine)
    return responses[-1], engine.stats().iteration - before


def test_a_right_draft_saves_a_step_for_each_token(make_engine, generate, greedy) -> None:
    engine = make_engine()
    plain, steps = _ask(engine, generate, [])
    drafted, fewer = _ask(engine, generate, greedy[:7])
    assert drafted.ids == plain.ids == greedy
    assert (steps, fewer) == (12, 12 - 7)
    assert (plain.perf.drafts, drafted.perf.drafts) == (None, (7, 7))


def test_a_wrong_draft_changes_nothing(make_engine, generate, greedy) -> None:
    half = [*greedy[:3], greedy[3] + 1, *greedy[4:8]]
    drafted, steps = _ask(make_engine(), generate, half)
    assert (drafted.ids, steps) == (greedy, 12 - 3)
    assert drafted.perf.drafts == (8, 3)
    none_right, all_steps = _ask(make_engine(), generate, [greedy[0] + 1])
    assert (none_right.ids, all_steps) == (greedy, 12)


def test_a_draft_longer_than_the_answer_may_be(make_engine, generate, greedy) -> None:
    drafted, steps = _ask(make_engine(), generate, greedy, count=4)
    assert (drafted.ids, steps, drafted.finish) == (greedy[:4], 1, "length")
    single, _ = _ask(make_engine(), generate, greedy, count=1)
    assert single.ids == greedy[:1]


def test_an_accepted_token_may_end_the_answer(make_engine, generate, greedy) -> None:
    ended, steps = _ask(make_engine(), generate, greedy[:6], end_id=greedy[2])
    assert (ended.ids, ended.finish, steps) == (greedy[:2], "stop", 1)
    word, _ = _ask(make_engine(), generate, greedy[:6], stop_words=((greedy[1], greedy[2]),))
    assert (word.ids, word.finish) == (greedy[:3], "stop")


def test_streaming_sends_what_a_step_accepted(generate, greedy) -> None:
    responses = generate(Request("", PROMPT, 6, draft=Draft(tuple(greedy[:3])), streaming=True, log_probs=True))
    assert [response.ids for response in responses] == [greedy[:4], greedy[4:5], greedy[5:6]]
    assert [len(response.log_probs) for response in responses] == [4, 5, 6]


def test_log_probs_are_those_without_a_draft(generate, greedy) -> None:
    more = {"log_probs": True, "top_log_probs": 3, "prompt_log_probs": 2, "context_logits": True}
    (plain,) = generate(Request("", PROMPT, 12, **more))
    (drafted,) = generate(Request("", PROMPT, 12, draft=Draft(tuple(greedy[:5])), **more))
    assert drafted.log_probs == pytest.approx(plain.log_probs, abs=1e-4)
    assert [[token for token, _ in top] for top in drafted.top_log_probs] == [
        [token for token, _ in top] for top in plain.top_log_probs
    ]
    assert drafted.prompt.log_probs == pytest.approx(plain.prompt.log_probs, abs=1e-4)
    np.testing.assert_allclose(drafted.prompt.logits, plain.prompt.logits, atol=1e-3)


def test_a_prompt_longer_than_a_step_with_a_draft(make_engine, generate) -> None:
    prompt = [(11 * place) % 250 + 5 for place in range(2 * PREFILL_TOKENS - 3)]
    (plain,) = generate(Request("", prompt, 20))
    (drafted,) = generate(Request("", prompt, 20, draft=Draft(tuple(plain.ids[:10]))))
    assert drafted.ids == plain.ids


def test_rejected_tokens_leave_nothing_in_the_cache(tiny, generate) -> None:
    prompt = [(11 * place) % 250 + 5 for place in range(BLOCK)]
    (plain,) = generate(Request("", prompt, BLOCK + 8))
    engine = ReferenceEngine(tiny, Limits(2048, kv_reuse_blocks=32))
    wrong = [(token + 1) % 250 for token in plain.ids]
    (drafted,) = generate(Request("", prompt, 2, draft=Draft((plain.ids[0], *wrong[1:]))), engine)
    assert drafted.ids == plain.ids[:2]
    longer = prompt + plain.ids[:BLOCK]
    (again,) = generate(Request("", longer, 8, perf_metrics=True), engine)
    assert again.ids == plain.ids[BLOCK : BLOCK + 8]


@settings(max_examples=examples(25))
@given(data=st.data())
def test_sampled_answers_are_the_same_with_any_draft(make_engine, data) -> None:
    engine = make_engine()
    # Few seeds: a draw that lies on the border between two tokens falls on either side, as logits of one pass differ by
    # rounding from those of several.
    sampling = Sampling(temperature=1.5, top_p=0.95, seed=data.draw(st.integers(0, 19)), frequency_penalty=0.3)

    def run(draft: tuple[int, ...]) -> list[int]:
        engine.submit(Request("", PROMPT, 10, sampling=sampling, draft=Draft(draft)))
        return drain(engine)[""][-1].ids

    plain = run(())
    kept = data.draw(st.integers(0, 10))
    rest = data.draw(st.lists(st.integers(3, 258), max_size=5))
    assert run((*plain[:kept], *rest)) == plain


def test_the_tensors_of_a_draft() -> None:
    ids = {"draft_input_ids": np.array([[8, 9]], np.int32)}
    assert read({"draft"}, **ids).draft.ids == (8, 9)
    more = {"draft_logits": np.ones((1, 2, 4), np.float32), "draft_acceptance_threshold": np.array([[0.5]], np.float32)}
    draft = read({"draft"}, **ids, **more).draft
    assert (draft.logits.shape, draft.threshold) == ((2, 4), 0.5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"draft_logits": np.ones((1, 2, 4), np.float32)}, "draft_logits must be given together with draft_input_ids"),
        ({"draft_acceptance_threshold": np.array([[0.5]], np.float32)}, "together with draft_logits"),
        ({**LOGITS, "draft_acceptance_threshold": np.array([[0.0]], np.float32)}, "must be above 0, to 1"),
        ({**LOGITS, "draft_logits": np.full((1, 1, 4), np.nan, np.float32)}, "must not hold NaN"),
    ],
)
def test_a_draft_that_cannot_be_is_named(wrong, message) -> None:
    with pytest.raises(RejectedError, match=message):
        read({"draft"}, **wrong)


def test_a_draft_that_does_not_fit_the_vocabulary_is_refused(generate) -> None:
    with pytest.raises(RejectedError, match="draft_input_ids must be within the vocabulary"):
        generate(Request("", PROMPT, 5, draft=Draft((267,))))
    with pytest.raises(RejectedError, match=r"draft_logits must have shape \[1, 2, 267\]"):
        generate(Request("", PROMPT, 5, draft=Draft((5, 6), np.zeros((1, 267), np.float32))))


def test_greedy_answers_are_the_target_s_own_by_logits_too(make_engine, generate, greedy) -> None:
    engine = make_engine()
    half = (*greedy[:3], greedy[3] + 1, *greedy[4:8])
    for threshold in (None, 0.01):
        before = engine.stats().iteration
        logits = np.random.default_rng(1).normal(size=(8, engine.vocab_size)).astype(np.float32)
        (answer,) = generate(Request("", PROMPT, 12, draft=Draft(half, logits, threshold), perf_metrics=True), engine)
        assert (answer.ids, engine.stats().iteration - before) == (greedy, 12 - 3)
        assert answer.perf.drafts == (8, 3)


OWN = np.array([2.0, 1.0, 0.5, -1.0, 0.0, -3.0], np.float32)
DRAFTED = np.array([0.0, 1.5, 0.5, 0.5, -2.0, 2.0], np.float32)


def _share(scores: np.ndarray) -> np.ndarray:
    mass = np.exp(scores.astype(np.float64))
    return mass / mass.sum()


def _checked(seed: int, threshold: float | None = None, **sampling: float) -> tuple[int, int]:
    """A token of `OWN` after a guess that was drawn from `DRAFTED` with the same seed, and the guess."""
    given = Sampling(**{"top_p": 1.0, **sampling}, seed=seed)
    guess = Sampler(Request("", [0], 9, sampling=given), len(OWN), normalize_log_probs=False).draw(DRAFTED, [0]).token
    draft = Draft((guess,), DRAFTED[None], threshold)
    sampler = Sampler(Request("", [0], 9, sampling=given, draft=draft), len(OWN), normalize_log_probs=False)
    return sampler.draw(OWN, [0], Guess(guess, DRAFTED, threshold)).token, guess


def test_sampled_answers_by_logits_have_the_target_s_distribution() -> None:
    count = 6000
    tokens, guesses = np.transpose([_checked(seed) for seed in range(count)])
    seen = np.bincount(tokens, minlength=len(OWN)) / count
    np.testing.assert_allclose(seen, _share(OWN), atol=0.02)
    # As many guesses are right as the two distributions have in common.
    assert np.mean(tokens == guesses) == pytest.approx(np.minimum(_share(OWN), _share(DRAFTED)).sum(), abs=0.02)


def test_the_sampling_of_the_request_holds_for_both_sides() -> None:
    tokens = {_checked(seed, top_k=2, temperature=0.7)[0] for seed in range(300)}
    assert tokens == {0, 1}  # the two best of OWN; the draft draws 5 and 1


def test_a_threshold_decides_alone() -> None:
    accepted = _share(OWN) >= 0.5 * _share(DRAFTED)
    assert sorted(np.flatnonzero(~accepted)) == [3, 5]
    for seed in range(200):
        token, guess = _checked(seed, threshold=0.5)
        assert (token == guess) == accepted[guess]


def test_acceptance_is_told(make_engine, generate, greedy) -> None:
    last, _ = _ask(make_engine(), generate, [*greedy[:3], greedy[3] + 1])
    tensors = to_tensors(last)
    told = {name: tensors[name].tolist() for name in tensors if "draft" in name or "accept" in name}
    assert told == {"total_draft_tokens": [[4]], "total_accepted_draft_tokens": [[3]], "acceptance_rate": [[0.75]]}
    assert tensors["acceptance_rate"].dtype == np.float32
