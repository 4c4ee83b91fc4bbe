"""Speculative decoding, with engines that are simple functions of the tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

Tensors = dict[str, np.ndarray]
END = 7


def following(tokens: list[int]) -> int:
    """The next token of the target, of everything before it; at times `END`."""
    return (sum(tokens) * 31 + len(tokens)) % 23


class Engine:
    """Continues tokens by a rule, as the engine model does; counts the steps that it would have taken."""

    def __init__(self, wrong: int = 0, *, tells_finish: bool = True) -> None:
        self.wrong, self.tells_finish = wrong, tells_finish
        self.steps = 0
        self.calls: list[Tensors] = []

    def __call__(self, inputs: Tensors) -> Tensors:
        self.calls.append(inputs)
        tokens = inputs["input_ids"][0].tolist()
        assert inputs["input_lengths"].item() == len(tokens)
        draft = inputs["draft_input_ids"][0].tolist() if "draft_input_ids" in inputs else []
        new: list[int] = []
        finish, accepted, end = b"length", 0, inputs["end_id"].item()
        for _ in range(inputs["request_output_len"].item()):
            token = following([*tokens, *new])
            if self.wrong and len(tokens + new) % self.wrong == 0:
                token = (token + 1) % 23
            hit = len(new) == accepted < len(draft) and draft[accepted] == token
            self.steps += not hit
            accepted += hit
            if token == end:
                finish = b"stop"
                break
            new.append(token)
        answer: Tensors = {
            "output_ids": np.array(new, np.int32).reshape(1, 1, -1),
            "sequence_length": np.array([[len(new)]], np.int32),
            "output_log_probs": np.array(new, np.float32).reshape(1, 1, -1) / -10,
            "cum_log_probs": np.array([[sum(new) / -10]], np.float32),
        }
        if draft:
            answer["total_draft_tokens"] = np.array([[len(draft)]], np.int32)
            answer["total_accepted_draft_tokens"] = np.array([[accepted]], np.int32)
        if "return_generation_logits" in inputs:
            # Zeros follow the last token, as an engine's do.
            rows = np.zeros((1, 1, inputs["request_output_len"].item(), 23), np.float32)
            rows[0, 0, range(len(new)), new] = 9
            answer["generation_logits"] = rows
        if self.tells_finish:
            answer["finish_reason"] = np.array([[finish]], np.object_)
        return answer


def asked(prompt: list[int], limit: int, end: int = END, **more: Any) -> Tensors:
    inputs = {
        "input_ids": np.array([prompt], np.int32),
        "input_lengths": np.array([[len(prompt)]], np.int32),
        "request_output_len": np.array([[limit]], np.int32),
        "end_id": np.array([[end]], np.int32),
        "exclude_input_in_output": np.array([[True]]),
    }
    return inputs | {name: np.array([[value]]) for name, value in more.items()}


def answered(ids: list[int]) -> Tensors:
    return {"output_ids": np.array([[ids]], np.int32), "sequence_length": np.array([[len(ids)]], np.int32)}


def plain(prompt: list[int], limit: int, end: int = END) -> list[int]:
    ids: list[int] = []
    while len(ids) < limit and (token := following([*prompt, *ids])) != end:
        ids.append(token)
    return ids


@given(
    prompt=st.lists(st.integers(0, 22), min_size=1, max_size=8),
    limit=st.integers(1, 30),
    drafts=st.integers(1, 9),
    wrong=st.integers(0, 6),
    streaming=st.booleans(),
)
def test_the_answer_is_the_target_s_own(speculation, prompt, limit, drafts, wrong, streaming) -> None:
    target = Engine()
    inputs = asked(prompt, limit, streaming=streaming)
    answers = list(speculation.Speculation(inputs, Engine(wrong), target, drafts).answers())
    expected = plain(prompt, limit)
    assert [token for answer in answers for token in answer["output_ids"].reshape(-1)] == expected
    last = answers[-1]
    assert [bool(answer.get("finish_reason")) for answer in answers] == [False] * (len(answers) - 1) + [True]
    assert last["finish_reason"].item() == (b"length" if len(expected) == limit else b"stop")
    np.testing.assert_allclose(last["output_log_probs"].reshape(-1), np.array(expected) / -10, rtol=1e-6)
    np.testing.assert_allclose(last["cum_log_probs"].item(), sum(expected) / -10, rtol=1e-4, atol=1e-6)
    assert target.steps <= len(expected) + 1
    assert len(answers) == 1 or streaming


def test_a_good_draft_saves_the_target_s_steps(speculation) -> None:
    target, draft = Engine(), Engine()
    (answer,) = speculation.Speculation(asked([1, 2], 20, end=-1), draft, target, 4).answers()
    assert answer["output_ids"].size == 20
    assert target.steps == 4
    assert answer["total_draft_tokens"].item() == answer["total_accepted_draft_tokens"].item() == 16
    assert answer["acceptance_rate"].item() == 1


@given(limit=st.integers(2, 30), drafts=st.integers(1, 9), wrong=st.integers(0, 6))
def test_the_target_is_given_the_logits_of_the_draft(speculation, limit, drafts, wrong) -> None:
    target, draft = Engine(), Engine(wrong)
    inputs = asked([4], limit, use_draft_logits=True, num_draft_tokens=drafts)
    (answer,) = speculation.Speculation(inputs, draft, target, drafts).answers()
    assert answer["output_ids"].reshape(-1).tolist() == plain([4], limit)
    assert all("return_generation_logits" in call and "use_draft_logits" not in call for call in draft.calls)
    for call in target.calls:
        assert "return_generation_logits" not in call
        assert ("draft_logits" in call) == ("draft_input_ids" in call)
        if "draft_logits" in call:
            ids = call["draft_input_ids"]
            assert call["draft_logits"].shape == (*ids.shape, 23)
            assert (call["draft_logits"].argmax(axis=-1) == ids).all()


def test_a_draft_that_gives_up_leaves_the_answer_to_the_target(speculation) -> None:
    target, draft, left = Engine(), Engine(), [1, 1]

    def tiring(inputs: Tensors) -> Tensors | None:
        return draft(inputs) if left and left.pop() else None

    answers = list(speculation.Speculation(asked([1], 22, end=-1, streaming=True), tiring, target, 4).answers())
    assert [token for answer in answers for token in answer["output_ids"].reshape(-1)] == plain([1], 22, end=-1)
    assert [answer["sequence_length"].item() for answer in answers] == [5, 5, 5, 5, 2]
    assert (target.steps, len(draft.calls)) == (1 + 1 + 5 + 5 + 2, 2)


def test_what_is_told_of_the_prompt_is_of_the_first_round(speculation) -> None:
    engine, rounds = Engine(), iter(range(10))

    def target(inputs: Tensors) -> Tensors:
        return engine(inputs) | {"num_cached_tokens": np.array([[next(rounds)]], np.int32)}

    (answer,) = speculation.Speculation(asked([1, 2], 9, end=-1), Engine(), target, 2).answers()
    assert answer["num_cached_tokens"].item() == 0


def test_an_engine_without_finish_reasons_ends_too(speculation) -> None:
    for limit in (3, 40):
        (answer,) = speculation.Speculation(
            asked([3, 3], limit), Engine(tells_finish=False), Engine(tells_finish=False), 5
        ).answers()
        assert answer["output_ids"].reshape(-1).tolist() == plain([3, 3], limit)
        assert "finish_reason" not in answer


def sampled(seed: int, *, end: float) -> Callable[[Tensors], Tensors]:
    """An engine without finish reasons that draws `END` with probability ``end``, else one of three tokens.

    It leaves off at a guess that it rejects, though it was asked for more.
    """
    draws = np.random.default_rng(seed)

    def call(inputs: Tensors) -> Tensors:
        guesses = inputs["draft_input_ids"][0].tolist() if "draft_input_ids" in inputs else []
        new: list[int] = []
        while len(new) < inputs["request_output_len"].item() and draws.random() >= end:
            new.append(int(draws.integers(1, 4)))
            if len(new) <= len(guesses) and guesses[len(new) - 1] != new[-1]:
                break
        return answered(new)

    return call


def test_a_sampled_answer_without_finish_reasons_is_as_long_as_without_drafts(speculation) -> None:
    """The target ends at each token with probability 1/5: 4 tokens on average, with a standard error of 0.14."""
    sizes = []
    for seed in range(1000):
        target, draft = sampled(seed, end=0.2), sampled(seed + 9999, end=0)
        (answer,) = speculation.Speculation(asked([5], 200), draft, target, 4).answers()
        sizes.append(answer["output_ids"].size)
    assert np.mean(sizes) == pytest.approx(4, abs=0.4)


@pytest.mark.parametrize(
    ("given", "ended"),
    [
        ([], True),
        ([1, 2], True),
        ([1, 2, 3], True),
        ([1, 2, 3, 4], False),
        ([1, 9], False),  # its own token after the guess that it rejected
        ([1, 9, 4], True),  # it went on after that, and then ended
    ],
)
def test_a_short_round_without_finish_reason_is_the_end_or_a_rejected_guess(speculation, given, ended) -> None:
    rounds = iter([given, []])
    speculative = speculation.Speculation(
        asked([5], 50), lambda _: answered([1, 2, 3]), lambda _: answered(next(rounds)), 3
    )
    list(speculative.answers())
    assert (list(rounds) == [[]]) == ended


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_stop_word_ends_where_no_finish_reason_tells_it(speculation, size) -> None:
    """It may begin in the round before, which had tokens 0 to 2; the second has two of three guesses right."""
    words = np.array([[[99, *range(15 - size, 15), 0], [1, 1 + size, *[-1] * size]]], np.int32)
    rounds = iter([[10, 11, 12], [13, 14], [15, 16, 17]])

    inputs = asked([5], 8) | {"stop_words_list": words}
    (answer,) = speculation.Speculation(
        inputs, lambda _: answered([13, 9]), lambda _: answered(next(rounds)), 2
    ).answers()
    assert answer["output_ids"].reshape(-1).tolist() == [10, 11, 12, 13, 14]


def test_the_prompt_is_echoed_where_it_is_not_left_out(speculation) -> None:
    inputs = asked([1, 2], 4, end=-1)
    del inputs["exclude_input_in_output"]
    (answer,) = speculation.Speculation(inputs, Engine(), Engine(), 2).answers()
    assert answer["output_ids"].reshape(-1).tolist() == [1, 2, *plain([1, 2], 4, end=-1)]


def test_rounds_go_on_where_the_last_one_ended(speculation) -> None:
    target, draft = Engine(), Engine()
    more = {"min_tokens": 5, "seed": np.uint64(2**64 - 1), "lora_task_id": 3, "lora_weights": 1, "num_draft_tokens": 2}
    list(speculation.Speculation(asked([1, 2], 9, end=-1, **more), draft, target, 2).answers())
    assert [call["min_tokens"].item() for call in target.calls] == [5, 2, 0]
    assert [call["seed"].item() for call in target.calls] == [2**64 - 1, 2, 5]
    assert ["lora_weights" in call for call in target.calls] == [True, False, False]
    assert all("lora_task_id" in call and "num_draft_tokens" not in call for call in target.calls)
    assert not any("lora_task_id" in call for call in draft.calls)


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_return_sequences", 2), ("beam_width", 2), ("return_context_logits", True)],
)
def test_what_drafts_do_not_go_with_is_named(speculation, name, value) -> None:
    assert speculation.refusal(asked([1], 5, **{name: value})).startswith(f"{name} is not supported")
    neutral = type(value)(name in {"num_return_sequences", "beam_width"})
    assert speculation.refusal(asked([1], 5, **{name: neutral})) is None
