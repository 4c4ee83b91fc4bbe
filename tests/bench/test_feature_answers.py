"""The answers that the benchmark's features are measured with are read as what they stand for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness import answers
from benchmarks.harness.features import FEATURES
from gateway.text.families import CallArguments, CallStart, Content, Event, Reasoning, Tool, ToolPlan
from gateway.text.families.family_table import FAMILIES
from gateway.text.tokens import Tokenizer

TOKENS = 400  # the tiny tokenizer needs many for a tag


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_model_dir)


def read(family: str, answer: answers.Answer, tokenizer: Tokenizer) -> list[Event]:
    turn = ToolPlan((Tool("weather"),), "auto")
    parser = FAMILIES[family].parser(turn, FAMILIES[family].prepare(turn), "")
    return [*parser.feed(tokenizer.decode(answer.ids)), *parser.finish(cut=True)]


def test_a_call_is_whole_and_behind_text(tokenizer: Tokenizer) -> None:
    answer = answers.call(tokenizer, TOKENS)
    assert len(answer.ids) == TOKENS
    assert answer.events == TOKENS // 2
    content, start, *rest = read("hermes", answer, tokenizer)
    assert isinstance(content, Content)
    assert isinstance(start, CallStart)
    arguments = "".join(each.text for each in rest if isinstance(each, CallArguments))
    assert set(json.loads(arguments)) == {"city"}


def test_half_of_a_reasoning_answer_is_reasoning(tokenizer: Tokenizer) -> None:
    answer = answers.reasoning(tokenizer, TOKENS)
    assert len(answer.ids) == TOKENS
    reasoning, content = read("qwen3", answer, tokenizer)
    assert isinstance(reasoning, Reasoning)
    assert isinstance(content, Content)
    assert len(reasoning.text) == pytest.approx(len(content.text), rel=0.25)
    assert answer.events < TOKENS  # the tags are not shown


def test_prose_holds_neither_calls_nor_reasoning(tokenizer: Tokenizer) -> None:
    answer = answers.prose(tokenizer, TOKENS)
    assert len(answer.ids) == answer.events == TOKENS
    assert read("qwen3", answer, tokenizer) == [Content(tokenizer.decode(answer.ids))]


def test_features_go_to_families_that_there_are() -> None:
    assert {feature.family for feature in FEATURES.values()} - {""} <= set(FAMILIES)
