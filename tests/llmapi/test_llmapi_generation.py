"""From the LLM API's growing outputs to responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from llmapi.generation import EngineError, Generation
from reference.request import Request, Response

END = 2


def output(ids: list[int], logprobs: list[Any] | None = None, finish: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=finish)


def run(request: Request, *outputs: SimpleNamespace) -> tuple[Generation, list[Response]]:
    generation = Generation(request)
    answers = [generation.advance(one, finished=one is outputs[-1] and bool(one.finish_reason)) for one in outputs]
    return generation, [answer for answer in answers if answer is not None]


def streaming(**more: Any) -> Request:
    return Request("r", [7, 8], 9, end_id=END, streaming=True, **more)


def test_deltas() -> None:
    _, answers = run(streaming(), output([3]), output([3]), output([3, 4, 5]), output([3, 4, 5, 6], finish="length"))
    assert [answer.ids for answer in answers] == [[3], [4, 5], [6]]
    assert [answer.finish for answer in answers] == [None, None, "length"]
    assert [answer.final for answer in answers] == [False, False, True]


@pytest.mark.parametrize("last", [[3], [3, END]], ids=["without", "with"])
def test_end_id_is_never_part_of_the_answer(last: list[int]) -> None:
    _, answers = run(streaming(), output([3]), output(last, finish="stop"))
    assert [answer.ids for answer in answers] == [[3], []]
    assert answers[-1].finish == "stop"


def test_times_come_with_the_end_and_nothing_of_the_kv_cache() -> None:
    _, (first, last) = run(streaming(perf_metrics=True, arrival_ns=1), output([3]), output([3, 4], finish="length"))
    assert first.perf is None
    assert last.perf is not None
    assert 1 == last.perf.arrival_ns < last.perf.first_token_ns < last.perf.last_token_ns
    assert (last.perf.first_scheduled_ns, last.perf.blocks, last.perf.cached_tokens) == (0, None, None)


def test_end_id_stays_where_it_ended_nothing() -> None:
    _, answers = run(streaming(), output([3, END], finish="length"))
    assert answers[0].ids == [3, END]


def test_single_token_stop_word_stays() -> None:
    generation, answers = run(streaming(stop_words=((5,),)), output([3]), output([3, 5], finish="stop"))
    assert [answer.ids for answer in answers] == [[3], [5]]
    assert not generation.matched


def test_word_of_several_tokens_over_two_steps_stays_and_ends() -> None:
    generation, answers = run(streaming(stop_words=((4, 5),)), output([3, 4]), output([3, 4, 5, 6]))
    assert [answer.ids for answer in answers] == [[3, 4], [5]]
    assert (answers[-1].finish, generation.matched) == ("stop", True)


def test_word_may_begin_in_the_prompt() -> None:
    _, answers = run(streaming(stop_words=((8, 3),)), output([3, 4]))
    assert (answers[0].ids, answers[0].finish) == ([3], "stop")


def test_one_answer_with_the_prompt() -> None:
    request = Request("r", [7, 8], 9, end_id=END, echo=True, log_probs=True)
    _, answers = run(request, output([3], [{3: -0.5}]), output([3, 4], [{3: -0.5}, {4: -1.0}], finish="length"))
    assert [(answer.ids, answer.log_probs, answer.cum_log_prob) for answer in answers] == [
        ([7, 8, 3, 4], [-0.5, -1.0], -1.5)
    ]


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: SimpleNamespace(logprob=value)])
def test_log_probs_are_the_growing_list_and_alternatives_are_new(wrap: Any) -> None:
    first, second = {3: wrap(-0.1), 9: wrap(-2.0)}, {9: wrap(-0.2), 8: wrap(-0.3), 4: wrap(-3.0)}
    request = streaming(log_probs=True, top_log_probs=2)
    _, answers = run(request, output([3], [first]), output([3, 4], [first, second], finish="length"))
    assert [answer.log_probs for answer in answers] == [[-0.1], [-0.1, -3.0]]
    assert [answer.top_log_probs for answer in answers] == [[[(3, -0.1), (9, -2.0)]], [[(9, -0.2), (8, -0.3)]]]


def test_plain_numbers_are_log_probs_of_the_chosen_tokens() -> None:
    _, answers = run(streaming(log_probs=True), output([3, 4], [-0.5, -0.25], finish="length"))
    assert answers[0].log_probs == [-0.5, -0.25]


@pytest.mark.parametrize(
    ("request_", "logprobs", "message"),
    [
        (streaming(log_probs=True), None, "gave 0 values"),
        (streaming(log_probs=True), [{9: -0.1}], "no log-prob of token 3"),
        (streaming(top_log_probs=2), [{3: -0.1}], "num_top_log_probs is 2, the engine gave 1"),
    ],
)
def test_missing_log_probs_are_an_error(request_: Request, logprobs: list[Any] | None, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        run(request_, output([3], logprobs))


@pytest.mark.parametrize("reason", ["timeout", "not_finished"])
def test_an_unknown_end_is_an_error(reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        run(streaming(), output([3], finish=reason))


def test_cancel_repeats_nothing() -> None:
    generation, _ = run(streaming(), output([3]))
    assert generation.cancel().ids == []
    assert generation.cancel().finish == "cancelled"
