"""Log-probs are true: the chosen and the best tokens', and the prompt's, against the engine's own logits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cpu_double.reference_engine import PREFILL_TOKENS
from wire.request import Request, Sampling
from wire.response import PromptScores, Response

PROMPT = [20, 21, 22, 23, 20]
BATCH_EFFECTS = 1e-3  # a token computed alone and the same one among others


def _log_softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _expected(logits: NDArray[np.float32], seen: list[int], sampling: Sampling) -> NDArray[np.float64]:
    """The documented distribution of the next token, from raw logits, step by step."""
    scores = logits.astype(np.float64) + (0.0 if sampling.bias is None else sampling.bias)
    scores /= sampling.temperature or 1.0
    for token in set(seen):
        scores[token] *= sampling.repetition_penalty if scores[token] < 0 else 1 / sampling.repetition_penalty
        scores[token] -= sampling.presence_penalty + sampling.frequency_penalty * seen.count(token)
    return _log_softmax(scores)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(top_p=1.0, seed=1),
        Sampling(temperature=0.7, top_p=1.0, seed=2),
        Sampling(temperature=1.7, top_p=0.8, top_k=20, seed=3),
        Sampling(temperature=1.7, top_p=1.0, min_p=0.3, seed=4),
        Sampling(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.25),
        Sampling(temperature=0.6, top_p=1.0, repetition_penalty=1.3, presence_penalty=-0.5, seed=5),
        Sampling(top_p=1.0, bias=np.linspace(-2, 2, 267, dtype=np.float32), seed=6),
        Sampling(repetition_penalty=0.9, bias=np.full(267, -20, np.float32)),  # what was said is first then
    ],
)
def test_log_probs_are_a_log_softmax_of_the_engines_own_logits(generate, sampling, *, streaming) -> None:
    request = Request("", PROMPT, 10, sampling=sampling, streaming=streaming)
    request.log_probs, request.top_log_probs, request.generation_logits = True, 5, True
    responses = generate(request)
    ids = [token for response in responses for token in response.ids]
    top = [alternatives for response in responses for alternatives in response.top_log_probs]
    logits = np.concatenate([response.logits for response in responses if response.logits is not None])
    assert logits.shape == (10, 267)
    for place, token in enumerate(ids):
        expected = _expected(logits[place], PROMPT + ids[:place], sampling)
        assert responses[-1].log_probs[place] == pytest.approx(expected[token], abs=1e-4)
        assert [id_ for id_, _ in top[place]] == np.argsort(-expected, kind="stable")[:5].tolist()
        np.testing.assert_allclose([value for _, value in top[place]], np.sort(expected)[: -5 - 1 : -1], atol=1e-4)


def test_logits_after_the_end_are_zeros_and_before_it_those_of_a_stream(generate) -> None:
    end = generate(Request("", PROMPT, 6))[0].ids[3]
    (whole,) = generate(Request("", PROMPT, 6, end_id=end, generation_logits=True))
    assert whole.logits.shape == (6, 267)
    assert whole.logits[: len(whole.ids)].any(axis=1).all()
    assert not whole.logits[len(whole.ids) :].any()
    stream = generate(Request("", PROMPT, 6, end_id=end, generation_logits=True, streaming=True))
    shapes = [None if response.logits is None else response.logits.shape for response in stream]
    assert shapes == [(1, 267)] * len(whole.ids) + [(0, 267)]
    for place, response in enumerate(stream[:-1]):
        np.testing.assert_allclose(response.logits, whole.logits[place : place + 1])


def _scores(responses: list[Response]) -> PromptScores:
    first, *others = responses
    assert first.prompt is not None
    assert all(response.prompt is None for response in others)
    return first.prompt


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_p=1.0, seed=11)])
def test_a_texts_log_probs_are_those_it_was_generated_with(generate, sampling) -> None:
    (answer,) = generate(Request("", PROMPT, 40, sampling=sampling, log_probs=True, top_log_probs=4))
    whole = Request("", PROMPT + answer.ids, 3, prompt_log_probs=4, streaming=True)
    scores = _scores(generate(whole))
    assert len(scores.log_probs) == len(whole.prompt) - 1
    np.testing.assert_allclose(scores.log_probs[len(PROMPT) - 1 :], answer.log_probs, atol=BATCH_EFFECTS)
    for told, generated in zip(scores.top_log_probs[len(PROMPT) - 1 :], answer.top_log_probs, strict=True):
        np.testing.assert_allclose([v for _, v in told], [v for _, v in generated], atol=BATCH_EFFECTS)


def test_prompt_log_probs_are_the_models_own_whatever_the_sampling_and_the_company(generate, make_engine) -> None:
    prompt = [(7 * place) % 250 + 5 for place in range(2 * PREFILL_TOKENS + 20)]
    engine = make_engine()
    engine.submit(Request("", PROMPT, 30))
    hot = Sampling(temperature=3.0, top_p=1.0, repetition_penalty=2.0, seed=1)
    request = Request("", prompt, 2, sampling=hot, prompt_log_probs=2, context_logits=True, streaming=True)
    scores = _scores([response for response in generate(request, engine) if response.request is request])
    assert scores.logits.shape == (len(prompt), 267)
    own = _log_softmax(scores.logits.astype(np.float64))
    expected = [own[place, token] for place, token in enumerate(prompt[1:])]
    np.testing.assert_allclose(scores.log_probs, expected, atol=1e-4)
    for place, alternatives in enumerate(scores.top_log_probs):
        assert [token for token, _ in alternatives] == np.argsort(-own[place], kind="stable")[:2].tolist()
    assert scores.ranks == [1 + int((own[place] > own[place, token]).sum()) for place, token in enumerate(prompt[1:])]
    (alone,) = generate(Request("", prompt, 1, prompt_log_probs=0))
    np.testing.assert_allclose(_scores([alone]).log_probs, scores.log_probs, atol=BATCH_EFFECTS)


def test_the_prompts_log_probs_come_also_where_there_are_none_and_no_answer(generate) -> None:
    assert _scores(generate(Request("", [20], 2, prompt_log_probs=3, streaming=True))) == PromptScores()
    end = generate(Request("", PROMPT, 1))[0].ids[0]
    (last,) = generate(Request("", PROMPT, 5, end_id=end, prompt_log_probs=0, streaming=True))
    assert (last.ids, last.finish) == ([], "stop")
    assert len(_scores([last]).log_probs) == len(PROMPT) - 1


def test_an_answer_that_is_cancelled_within_its_prompt_tells_nothing_of_it(make_engine) -> None:
    engine = make_engine()
    engine.submit(Request("a", [30] * 2 * PREFILL_TOKENS, 5, prompt_log_probs=0, streaming=True))
    assert engine.step() == []
    engine.cancel("a")
    (last,) = engine.step()
    assert (last.finish, last.prompt) == ("cancelled", None)


def test_min_p_keeps_what_is_probable_enough_beside_the_best(generate) -> None:
    (answer,) = generate(Request("", PROMPT, 1, top_log_probs=20, sampling=Sampling(temperature=2.0)))
    relative = {token: float(np.exp(value - answer.top_log_probs[0][0][1])) for token, value in answer.top_log_probs[0]}
    values = list(relative.values())
    least = (values[3] + values[4]) / 2
    for top_p in (1.0, 0.999):
        hot = [Sampling(temperature=2.0, top_p=top_p, min_p=least, seed=seed) for seed in range(200)]
        drawn = {generate(Request("", PROMPT, 1, sampling=sampling))[0].ids[0] for sampling in hot}
        assert drawn == set(list(relative)[:4])
