"""The reader of answers: however the text comes, the same events, the same end, the same count of reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.serving.answer_reader import AnswerReader
from gateway.text.families import CallArguments, CallStart, Content, Event, Reasoning, Tool, ToolPlan
from gateway.text.families.family_choice import named
from gateway.text.families.parser_events import merge
from tests.families.harness import Case, all_cases, some, tokens
from tests.rings import examples

TURN = ToolPlan(tools=(Tool("f"), Tool("g")), choice="auto")
FAMILY = named("qwen3")
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "stop here"}}\n</tool_call>'
ANSWER = f"<think>\nOne stop\n</think>\n\nTwo, {CALL}\nthree, stop and four"


class Outcome:
    """What a reader said of an answer that came in parts, each a token."""

    def __init__(self, parts: Sequence[str], stops: tuple[str, ...] = (), *, include_stop: bool = False) -> None:
        reader = AnswerReader(FAMILY.parser(TURN, FAMILY.prepare(TURN), ""), stops, include_stop=include_stop)
        self.passed, self.content, self.reasoning, self.calls = "", "", "", [""]
        start = 0
        events = []
        for part in parts:
            reader.count(start, start + len(part))
            start += len(part)
            self.passed += reader.push(part)
            events += reader.take()
            if reader.matched is not None:
                break
        self.passed += reader.flush()
        reader.close(cut=False)
        events += reader.take()
        for event in events:
            if isinstance(event, Content):
                self.content += event.text
            elif isinstance(event, Reasoning):
                self.reasoning += event.text
            elif isinstance(event, CallStart):
                self.calls.append(event.name)
            elif isinstance(event, CallArguments):
                self.calls[-1] += event.text
        self.reader = reader


def cut(text: str, places: Sequence[int]) -> list[str]:
    bounds = [0, *sorted({place % len(text) for place in places} - {0}), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_however_it_comes(places: list[int]) -> None:
    found = Outcome(cut(ANSWER, places))
    assert (found.reasoning, found.calls[1:]) == ("One stop", ['f{"a": "stop here"}'])
    assert found.content == Outcome([ANSWER]).content
    assert found.passed == ANSWER
    assert found.reader.matched is None


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 10_000), max_size=40), st.booleans())
def test_the_first_stop_string_in_content_is_the_end(places: list[int], include: bool) -> None:
    found = Outcome(cut(ANSWER, places), ("stop", "nowhere"), include_stop=include)
    assert found.content.endswith("three, stop" if include else "three, ")
    assert found.calls[1:] == ['f{"a": "stop here"}']
    assert found.reader.matched == "stop"
    place = ANSWER.rindex("stop")
    assert (found.reader.position, found.reader.end) == (place, place + 4)
    assert found.passed == ANSWER[: place + 4 * include]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_tokens_of_reasoning_are_those_whose_text_is_reasoning(size: int) -> None:
    parts = [ANSWER[start : start + size] for start in range(0, len(ANSWER), size)]
    start = ANSWER.index("One stop")
    end = start + len("One stop")
    covered = [at for at in range(0, len(ANSWER), size) if at < end and at + size > start]
    assert Outcome(parts).reader.reasoning_tokens == len(covered)


def test_a_stop_string_does_not_reach_across_a_call() -> None:
    found = Outcome(list(f"<think></think>a{CALL}b"), ("ab",))
    assert (found.content, found.reader.matched) == ("ab", None)


def test_what_is_held_back_comes_at_the_end() -> None:
    found = Outcome(list("<think></think>One sto"), ("stop",))
    assert (found.content, found.reader.matched) == ("One sto", None)


def test_texts_that_end_an_answer_of_text() -> None:
    reader = AnswerReader(FAMILY.parser(TURN, FAMILY.prepare(TURN), ""), ("x",))
    reader.end_at(("<|im_end|>",))
    shown = "".join(reader.push(part) for part in ("<think>a</thi", "nk>b<|im", "_end|>c"))
    assert (reader.matched, shown) == ("<|im_end|>", "<think>a</think>b")
    reader.close(cut=False)
    assert reader.take() == [Reasoning("a"), Content("b")]
    assert reader.reasoning_tokens is None


def test_it_costs_no_more_than_the_text_is_long() -> None:
    text = "<think></think>" + "word, " * 20_000
    found = Outcome([text[start : start + 4] for start in range(0, len(text), 4)], ("stop", "words"))
    assert found.content.strip() == ("word, " * 20_000).strip()


CASES = all_cases()


def read_tokens(case: Case, *, alone: bool) -> tuple[list[tuple[str, list[Event]]], int | None, int]:
    """What each token of an answer lets pass and says, the tokens of reasoning, and how many were taken alone."""
    reader = AnswerReader(case.parser(eager=False))
    start = taken = 0
    said: list[tuple[str, list[Event]]] = []
    for text in filter(None, tokens(case)):
        if alone and reader.take_token(text):
            taken += 1
            shown = text
        else:
            reader.count(start, start + len(text))
            shown = reader.push(text)
        start += len(text)
        said.append((shown, merge(reader.take())))
    shown = reader.flush()
    reader.close(cut=case.cut)
    return [*said, (shown, merge(reader.take()))], reader.reasoning_tokens, taken


@pytest.mark.parametrize("case", some(CASES))
def test_tokens_that_are_taken_alone_say_the_same(case: Case) -> None:
    short, thought, _ = read_tokens(case, alone=True)
    long, also_thought, _ = read_tokens(case, alone=False)
    assert short == long
    assert thought == also_thought


@pytest.mark.parametrize("case", some(CASES))
def test_events_may_be_taken_later(case: Case) -> None:
    reader = AnswerReader(case.parser(eager=False))
    events: list[Event] = []
    start = 0
    for place, text in enumerate(filter(None, tokens(case))):
        if not reader.take_token(text):
            reader.count(start, start + len(text))
            reader.push(text)
        start += len(text)
        if place % 3 == 0:
            events += reader.take()
    reader.flush()
    reader.close(cut=case.cut)
    at_once = [event for _, said in read_tokens(case, alone=False)[0] for event in said]
    assert merge([*events, *reader.take()]) == merge(at_once)


def test_an_end_that_is_told_late_is_found() -> None:
    reader = AnswerReader(FAMILY.parser(TURN, FAMILY.prepare(TURN), ""))
    for text in ("One", " two", " three"):
        if not reader.take_token(text):
            reader.push(text)
    reader.end_at(("<end>",))
    assert not reader.take_token(" four")
    reader.push(" four<end> five")
    reader.flush()
    reader.close(cut=False)
    assert merge(reader.take()) == [Content("One two three four")]


def test_many_tokens_of_content_and_reasoning_are_taken_alone() -> None:
    taken = sum(read_tokens(case, alone=True)[2] for case in CASES)
    texts = sum(len(said) > 0 for case in CASES for _, said in read_tokens(case, alone=False)[0])
    assert taken > texts / 3, "else the comparison above says little"
