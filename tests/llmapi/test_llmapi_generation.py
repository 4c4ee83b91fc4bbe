"""From the LLM API's growing outputs to responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engines.llmapi.beams import BeamSearch
from engines.llmapi.generation import EngineError, Generation
from wire.outputs import to_tensors
from wire.request import Beams, Request
from wire.response import Beam, Response

END = 2


def output(ids: list[int], logprobs: list[Any] | None = None, finish: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=finish)


def run(request: Request, *outputs: SimpleNamespace) -> tuple[Generation, list[Response]]:
    generation = Generation(request)
    answers = [generation.advance(one, finished=one is outputs[-1] and bool(one.finish_reason)) for one in outputs]
    return generation, [answer for answer in answers if answer is not None]


def streaming(**more: Any) -> Request:
    return Request("r", [7, 8], 9, end_id=END, streaming=True, **more)


def test_times_come_with_the_end_and_nothing_of_the_kv_cache() -> None:
    _, (first, last) = run(streaming(perf_metrics=True, arrival_ns=1), output([3]), output([3, 4], finish="length"))
    assert first.perf is None
    assert 1 == last.perf.arrival_ns < last.perf.first_token_ns < last.perf.last_token_ns
    assert (last.perf.first_scheduled_ns, last.perf.blocks, last.perf.cached_tokens) == (0, None, None)


def test_what_of_the_outputs_is_told() -> None:
    def told(request: Request, *outputs: SimpleNamespace) -> list[Any]:
        _, answers = run(request, *outputs)
        return [(answer.ids, answer.finish, answer.log_probs, answer.cum_log_prob) for answer in answers]

    # An end_id stays where it ended nothing, and a stop word may begin in the prompt.
    assert told(streaming(), output([3, END], finish="length")) == [([3, END], "length", [], 0.0)]
    assert told(streaming(stop_words=((8, 3),)), output([3, 4]))[0][:2] == ([3], "stop")
    whole = Request("r", [7, 8], 9, end_id=END, echo=True, log_probs=True)
    outputs = output([3], [{3: -0.5}]), output([3, 4], [{3: -0.5}, {4: -1.0}], finish="length")
    assert told(whole, *outputs) == [([7, 8, 3, 4], "length", [-0.5, -1.0], -1.5)]
    # Plain numbers are log-probs of the chosen tokens.
    plain = output([3, 4], [-0.5, -0.25], finish="length")
    assert told(streaming(log_probs=True), plain) == [([3, 4], "length", [-0.5, -0.25], -0.75)]


@pytest.mark.parametrize(
    ("request_", "logprobs", "message"),
    [
        (streaming(log_probs=True), None, "gave 0 values"),
        (streaming(log_probs=True), [{9: -0.1}], "no log-prob of token 3"),
        (streaming(top_log_probs=2), [{3: -0.1}], "num_top_log_probs is 2, the engine gave 1"),
    ],
)
def test_missing_log_probs_are_an_error(request_, logprobs, message) -> None:
    with pytest.raises(EngineError, match=message):
        run(request_, output([3], logprobs))


@pytest.mark.parametrize("reason", ["timeout", "not_finished"])
def test_an_unknown_end_is_an_error_and_a_cancel_repeats_nothing(reason) -> None:
    with pytest.raises(EngineError, match=reason):
        run(streaming(), output([3], finish=reason))
    generation, _ = run(streaming(), output([3]))
    assert (generation.cancel().ids, generation.cancel().finish) == ([], "cancelled")


def rows(*values: float) -> np.ndarray[Any, Any]:
    return np.array([[value] * 4 for value in values], np.float32)


def step(ids: list[int], logits: Any, finish: str | None = None, context: Any = None) -> SimpleNamespace:
    given = SimpleNamespace(token_ids=ids, logprobs=None, finish_reason=finish, generation_logits=logits)
    return SimpleNamespace(outputs=[given], finished=finish is not None, context_logits=context)


def logits_of(answer: Response | None) -> Any:
    return None if answer.logits is None else answer.logits[:, 0].tolist()


def test_streamed_logits_are_those_of_the_new_tokens() -> None:
    generation = Generation(streaming(generation_logits=True), np.asarray, 9)
    told = [generation.step(step([3], rows(1))), generation.step(step([3, 4], rows(2)))]
    end = generation.step(step([3, 4, END], rows(3), "stop"))
    assert [logits_of(answer) for answer in told] == [[1], [2]]
    assert (logits_of(end), end and end.ids) == ([], [])


@pytest.mark.parametrize("stop_words", [(), ((4, 5),)], ids=["at the end", "followed step by step"])
def test_logits_of_a_whole_answer_end_in_zeros(stop_words) -> None:
    request = Request("r", [7, 8], 4, end_id=END, generation_logits=True, stop_words=stop_words)
    generation = Generation(request, np.asarray, 4)
    if not stop_words:
        assert logits_of(generation.step(step([3, 4, END], rows(1, 2, 3), "stop"))) == [1, 2, 0, 0]
        return
    assert generation.step(step([3], rows(1))) is None
    assert logits_of(generation.step(step([3, 4, END], rows(2, 3), "stop"))) == [1, 2, 0, 0]


def test_logits_of_the_prompt_come_once_and_whole() -> None:
    generation = Generation(streaming(context_logits=True), np.asarray, 9)
    first, last = (generation.step(step(ids, None, end, rows(1, 2))) for ids, end in (([3], None), ([3, 4], "length")))
    assert first.prompt.logits[:, 0].tolist() == [1, 2]
    assert last.prompt is None
    partly = Generation(streaming(context_logits=True), np.asarray, 9)
    with pytest.raises(EngineError, match="return_context_logits: the engine gave logits of 1 of the prompt's 2"):
        partly.step(step([3], None, None, rows(1)))
    with pytest.raises(EngineError, match="return_generation_logits: the engine gave logits of 0 tokens for 1"):
        Generation(streaming(generation_logits=True), np.asarray, 9).step(step([3], None))


def test_beams_come_at_the_end_in_their_order() -> None:
    request = Request("r", [7], 3, end_id=END, beams=Beams(2), log_probs=True, echo=True, num_output_tokens=True)
    search = BeamSearch(request)
    assert search.step(SimpleNamespace(finished=False, outputs=[])) is None
    beams = [output([3, END], [{3: -0.5}, {END: -1.0}], "stop"), output([4, 5], [-0.25, -2.0], "length")]
    answer = search.step(SimpleNamespace(finished=True, outputs=beams))
    assert answer.beams == (Beam([7, 3], [-0.5]), Beam([7, 4, 5], [-0.25, -2.0]))
    assert (answer.final, answer.finish, answer.ids) == (True, "stop", [])
    tensors = to_tensors(answer)
    assert tensors["output_ids"].tolist() == [[[7, 3, -1], [7, 4, 5]]]
    assert tensors["sequence_length"].tolist() == [[2, 3]]
    assert tensors["output_log_probs"].tolist() == [[[-0.5, 0.0], [-0.25, -2.0]]]
    assert tensors["cum_log_probs"].tolist() == [[-0.5, -2.25]]
    assert tensors["num_output_tokens"].tolist() == [[5]]
    with pytest.raises(EngineError, match="beam_width is 2, the engine gave 1 beams"):
        BeamSearch(request).step(SimpleNamespace(finished=True, outputs=beams[:1]))
    assert search.cancel().finish == "cancelled"
