# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.families import CallArguments, CallStart, Content, Event, Reasoning
from gateway.text.families.parser_events import merge
from tests.families.harness import Case, all_cases, case_ids, cut_at, parse, some, tokens
from tests.tokens.build import FIXED

CASES = all_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=case_ids(CASES))
some_cases = pytest.mark.parametrize("case", some(CASES))


@each_case
def test_the_whole_output_means_these_events(case: Case) -> None:
    assert case.parse([case.output], eager=False) == case.events
    assert case.parse([case.output], eager=True) == case.eager_events


@some_cases
def test_single_characters_and_single_tokens_mean_the_same(case: Case) -> None:
    assert "".join(tokens(case)) == case.output
    for chunks in (case.output, tokens(case)):
        assert case.parse(chunks, eager=False) == case.events
        assert case.parse(chunks, eager=True) == case.eager_events


@FIXED
@given(st.sampled_from(CASES), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_any_split_means_the_same(case: Case, cuts: list[int], eager: bool) -> None:
    expected = case.eager_events if eager else case.events
    assert case.parse(cut_at(case.output, cuts), eager=eager) == expected


@each_case
def test_arguments_are_whole_and_no_marker_reaches_the_client(case: Case) -> None:
    for event in case.events:
        if isinstance(event, CallArguments) and not case.guided:
            assert isinstance(json.loads(event.text), dict)
    for event in [*case.events, *case.eager_events]:
        if isinstance(event, (Content, Reasoning)):
            assert not [marker for marker in case.markers if marker in event.text]


# What only the formats say; a call's own JSON or Python is text, if the call is none.
CONTROL = {
    "harmony": ("functions.", "to=", "commentary", "assistant", "constrain"),
    "kimi": ("functions.", ":0"),
    "deepseek_v3": ("function", "```json"),
    "deepseek_v31": ("get_weather",),
    "mistral_v11": ("[ARGS", "[CALL_ID"),
    "qwen3_coder": ("<function=", "</function", "<parameter=", "</parameter"),
    "qwen3_5": ("<function=", "</function", "<parameter=", "</parameter"),
    **dict.fromkeys(
        ("seed_oss", "nemotron3", "step3p5", "mimo"), ("<function=", "</function", "<parameter=", "</parameter")
    ),
    **dict.fromkeys(("minimax_m2", "dots"), ("<invoke", "</invoke", "<parameter", "</parameter")),
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "gigachat35"), ("｜", "invoke", "parameter", "string=")),
    "minimax_m3": ("minimax", "<invoke", "</invoke", "<city"),
    "longcat2": ("longcat_arg",),
    "step3": ("steptml", "function"),
    "minicpm5": ("<function", "</function", "<param", "</param"),
    "gemma4": ("call:",),
    "functiongemma": ("call:",),
    "granite": ("<response", "</response"),
}


def makes_calls(case: Case) -> bool:
    return any(isinstance(event, CallArguments) for event in case.events)


SOUND = [case for case in CASES if makes_calls(case)]


class Format:
    """What an answer that is cut must not show of a case's format: markers, their beginnings, headers of calls."""

    def __init__(self, case: Case) -> None:
        meant = "".join(event.text for event in case.events if not isinstance(event, CallStart))
        self._parts = [*case.markers, *(text for text in CONTROL.get(case.family.name, ()) if text not in meant)]
        self._begun = tuple({marker[:end] for marker in case.markers for end in range(2, len(marker) + 1)})

    def check_hidden(self, events: Iterable[Event], text: str) -> None:
        for event in events:
            if isinstance(event, (Content, Reasoning)):
                assert not [part for part in self._parts if part in event.text], text
                assert not event.text.endswith(self._begun), text


@pytest.mark.parametrize("case", some(SOUND))
def test_an_output_that_is_cut_anywhere_shows_nothing_of_its_format(case: Case) -> None:
    """Cut at every character: no marker, no beginning of one, and no header of a call; held calls are seen below."""
    hidden = Format(case)
    for end in range(len(case.output)):
        text = case.output[:end]
        hidden.check_hidden(parse(case.parser(eager=True), [text], cut=True), text)


@FIXED
@given(st.sampled_from(CASES), st.integers(0, 10_000), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_a_cut_output_means_the_same_in_any_chunks(case: Case, end: int, cuts: list[int], eager: bool) -> None:
    text = case.output[: end % (len(case.output) + 1)]
    whole = parse(case.parser(eager=eager), [text], cut=True)
    assert parse(case.parser(eager=eager), cut_at(text, cuts), cut=True) == whole


@some_cases
def test_a_truncated_output_never_makes_half_a_call(case: Case) -> None:
    """Cut anywhere, what is said is a beginning of what the whole says, or broken calls as content."""
    calls = [event for event in case.events if not isinstance(event, (Content, Reasoning))]
    hidden = Format(case) if makes_calls(case) else None
    for end in range(len(case.output)):
        parser = case.parser(eager=False)
        events = [*parser.feed(case.output[:end]), *parser.finish(cut=True)]
        for event in events:
            if isinstance(event, CallArguments) and not case.guided:
                assert isinstance(json.loads(event.text), dict)
        if calls and not case.guided:
            said = [event for event in events if not isinstance(event, (Content, Reasoning))]
            assert said == calls[: len(said)]
        if hidden:
            hidden.check_hidden(merge(events), case.output[:end])
