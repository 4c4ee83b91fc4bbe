"""The scripts that all doubles play: what they say, where it ends, and the steps in which it comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.scripted_engine.replay import turn
from tests.scripted_engine.turns import Answer, Asked, Script, ScriptedError, play, sampling_of

from cpu_double.llama import Llama  # isort: skip - by the path that the scripts add
from cpu_double.reference_engine import Limits, ReferenceEngine  # isort: skip
from wire.request import Request, Sampling  # isort: skip

Open = Callable[..., Script]


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))


@pytest.fixture
def script(tokenizer: Tokenizer, tmp_path: Path) -> Open:
    def write(*turns: dict[str, Any], chunk: Any = 1, **ends: int) -> Script:
        (tmp_path / "script.json").write_text(json.dumps({"chunk": chunk, "turns": turns}))
        return Script(tmp_path / "script.json", tokenizer, **ends)

    return write


def steps(answer: Answer, is_over: Callable[[], bool] = bool, **more: Any) -> list[tuple[list[int], str | None]]:
    return [tuple(step) for step in play(answer, answer.ids, is_over, **more)]


@pytest.mark.parametrize(
    ("asked", "said", "finish", "end"),
    [
        ({}, [10, 11, 12, 13], "stop", None),
        ({"limit": 3}, [10, 11, 12], "length", None),
        ({"limit": 4}, [10, 11, 12, 13], "length", None),
        ({"ends": frozenset({12})}, [10, 11], "stop", 12),
        ({"ends": frozenset({12}), "min_tokens": 3}, [10, 11, 13], "stop", None),
        ({"stop_words": [(99, 11), (11, 12)]}, [10, 11, 12], "stop", None),
        ({"stop_words": [(6, 10)]}, [10], "stop", None),  # also where it began in the prompt
    ],
)
def test_the_request_s_own_ends_hold(
    script: Open, asked: dict[str, Any], said: list[int], finish: str, end: int | None
) -> None:
    answer = script(turn(prompt_ids=[5, 6], ids=[10, 11, 12, 13])).answer(
        Asked(**{"prompt": [5, 6], "limit": 9, **asked})
    )
    assert (answer.ids, answer.finish, answer.end) == (said, finish, end)
    assert answer.drawn == said + ([] if end is None else [end])


def test_a_model_says_the_same_again_where_its_end_token_ends_nothing(script: Open) -> None:
    two = script(turn(ids=[10, 11]), eos=2)
    assert two.answer(Asked([5], 9, frozenset({2}))).drawn == [10, 11, 2]
    assert two.answer(Asked([5], 5)).ids == [10, 11, 2, 10, 11]
    assert two.answer(Asked([5], 5, frozenset({2}), min_tokens=4)).ids == [10, 11, 10, 11]
    nothing = script(turn(ids=[]), eos=2)
    assert nothing.answer(Asked([5], 9, frozenset({2}))).drawn == [2]
    assert nothing.answer(Asked([5], 3, frozenset({2}), min_tokens=3)).ids == [5, 5, 5]


def test_tokens_come_in_the_script_s_chunks(script: Open) -> None:
    answer = script(turn(ids=[1, 2, 3, 4, 5]), chunk=[1, 3]).answer(Asked([5], 9))
    assert steps(answer) == [([1], None), ([2, 3, 4], None), ([5], "stop")]
    assert steps(answer, end_alone=True)[-2:] == [([5], None), ([], "stop")]
    own = script(turn(ids=[1, 2], chunk=2, finish="timeout"), chunk=1).answer(Asked([5], 9))
    assert steps(own) == [([1, 2], "timeout")]


def test_an_answer_may_fail_or_stand_still(script: Open, tmp_path: Path) -> None:
    fails = play(script(turn(ids=[1, 2, 3], fail_after=2, error="out")).answer(Asked([5], 9)), [1, 2, 3], bool)
    assert [next(fails).ids, next(fails).ids] == [[1], [2]]
    with pytest.raises(ScriptedError, match="out"):
        next(fails)
    for stands in ({"stall_after": 2}, {"hold": True}):
        looks = iter([False] * 4 + [True] * 9)
        answer = script(turn(ids=[1, 2], **stands)).answer(Asked([5], 9))
        assert steps(answer, lambda: next(looks))[-1] == ([], "cancelled")  # noqa: B023
    file = tmp_path / "go"
    waits = play(script(turn(ids=[1, 2, 3], chunk=9, until=str(file))).answer(Asked([5], 9)), [1, 2, 3], bool)
    assert next(waits).ids == [1, 2]
    file.touch()
    assert next(waits) == ([3], "stop")


def test_sampled_answers_follow_what_is_heeded_and_end_by_chance(script: Open) -> None:
    sampled = script(turn(sampled={"pieces": ["ab", "世", " t"], "end": 0.1}), eos=2)
    asked = [Asked([5], 16, frozenset({2}), heeded=[seed]) for seed in range(30)]
    first = [sampled.answer(each) for each in asked]
    assert [sampled.answer(each) for each in asked] == first
    assert {answer.finish for answer in first} == {"stop", "length"}
    assert len({tuple(answer.ids) for answer in first}) > 20
    free = {tuple(sampled.answer(Asked([5], 16, frozenset({2}))).ids) for _ in range(9)}
    assert len(free) > 3


PROMPT = [5, 6, 7, 6]
EACH_WAY = [
    {},
    {"temperature": 0.7, "top_p": 0.9, "seed": 3},
    {"temperature": 2.0, "top_k": 5, "seed": 4, "repetition_penalty": 1.5},
    {"top_p": 1.0, "seed": 5, "presence_penalty": 0.5, "frequency_penalty": 0.25, "min_p": 0.01},
    {"top_p": 1.0, "seed": 6, "bias": np.linspace(2, -2, 512), "bad_words": ((9,), (6, 8))},
]


@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("how", EACH_WAY, ids=lambda how: ",".join(how) or "greedy")
def test_a_table_of_logits_is_sampled_as_by_the_computing_engine(
    script: Open, tiny_model_dir: Path, how: dict[str, Any], *, normalizes: bool
) -> None:
    model = Llama(tiny_model_dir)
    engine = ReferenceEngine(model, Limits(64), normalize_log_probs=normalizes)
    bias = {"bias": np.resize(how["bias"], model.config.vocab).astype(np.float32)} if "bias" in how else {}
    sampling = Sampling(**{**how, **bias})
    engine.submit(Request("", PROMPT, 12, sampling=sampling, log_probs=True, generation_logits=True))
    while engine.busy:
        computed = engine.step()
    [whole] = computed
    assert len(set(whole.ids)) > 1
    table = [{str(token): float(value) for token, value in enumerate(row)} for row in whole.logits]
    played = script(turn(logits=table)).answer(Asked(PROMPT, 12, heeded=[], sampling=sampling, normalizes=normalizes))
    assert (played.ids, played.log_probs) == (whole.ids, whole.log_probs)


def test_what_a_model_of_text_follows_draws_from_a_table(script: Open) -> None:
    table = script(turn(logits=[{"7": 1.0, "8": 0.9}, {"2": 1.0}]), eos=2)

    def first(**effective: Any) -> int:
        return table.answer(Asked([5], 9, frozenset({2}), heeded=[], sampling=sampling_of(effective))).drawn[0]

    assert {first(temperature=0.0, seed=seed) for seed in range(9)} == {7}
    assert {first(greedy=True, top_p=0.9, seed=seed) for seed in range(9)} == {7}
    assert {first(temperature=1.0, top_p=1.0, seed=seed) for seed in range(9)} == {7, 8}
    unseeded = [table.answer(Asked([5], 9, sampling=sampling_of({"temperature": 1.0}))).ids[0] for _ in range(30)]
    assert set(unseeded) == {7, 8}
    ended = table.answer(Asked([5], 9, frozenset({2}), heeded=[], sampling=sampling_of({"greedy": True})))
    assert (ended.ids, ended.end, ended.finish, len(ended.log_probs)) == ([7], 2, "stop", 1)
