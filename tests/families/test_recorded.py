# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.families import CallArguments, CallStart, Content, Reasoning
from tests.families.harness import Case, all_cases, case_ids, cut_at, parse, tokens
from tests.tokens.build import FIXED

CASES = all_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=case_ids(CASES))


@each_case
def test_the_whole_output_means_these_events(case: Case) -> None:
    assert case.parse([case.output], eager=False) == case.events
    assert case.parse([case.output], eager=True) == case.eager_events


@each_case
def test_single_characters_and_single_tokens_mean_the_same(case: Case) -> None:
    assert "".join(tokens(case)) == case.output
    for chunks in (case.output, tokens(case)):
        assert case.parse(chunks, eager=False) == case.events
        assert case.parse(chunks, eager=True) == case.eager_events


@each_case
def test_every_split_in_two_means_the_same(case: Case) -> None:
    for cut in range(len(case.output)):
        chunks = [case.output[:cut], case.output[cut:]]
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
SOUND = [case for case in CASES if any(isinstance(event, CallArguments) for event in case.events)]


@pytest.mark.parametrize("case", SOUND, ids=case_ids(SOUND))
@pytest.mark.parametrize("eager", [False, True], ids=["held", "eager"])
def test_an_output_that_is_cut_anywhere_shows_nothing_of_its_format(case: Case, eager: bool) -> None:
    """Cut at every character: no marker, no beginning of one, and no header of a call."""
    meant = "".join(event.text for event in case.events if not isinstance(event, CallStart))
    control = [text for text in CONTROL.get(case.family.name, ()) if text not in meant]
    begun = {marker[:end] for marker in case.markers for end in range(2, len(marker) + 1)}
    for end in range(len(case.output)):
        text = case.output[:end]
        events = parse(case.parser(eager=eager), [text], cut=True)
        for event in events:
            if isinstance(event, (Content, Reasoning)):
                assert not [marker for marker in case.markers if marker in event.text], text
                assert not [beginning for beginning in begun if event.text.endswith(beginning)], text
                assert not [part for part in control if part in event.text], text


@FIXED
@given(st.sampled_from(CASES), st.integers(0, 10_000), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_a_cut_output_means_the_same_in_any_chunks(case: Case, end: int, cuts: list[int], eager: bool) -> None:
    text = case.output[: end % (len(case.output) + 1)]
    whole = parse(case.parser(eager=eager), [text], cut=True)
    assert parse(case.parser(eager=eager), cut_at(text, cuts), cut=True) == whole


@each_case
def test_a_truncated_output_never_makes_half_a_call(case: Case) -> None:
    """Cut anywhere, what is said is a beginning of what the whole says, or broken calls as content."""
    calls = [event for event in case.events if not isinstance(event, (Content, Reasoning))]
    for end in range(len(case.output)):
        parser = case.parser(eager=False)
        events = [*parser.feed(case.output[:end]), *parser.finish(cut=True)]
        for event in events:
            if isinstance(event, CallArguments) and not case.guided:
                assert isinstance(json.loads(event.text), dict)
        if calls and not case.guided:
            said = [event for event in events if not isinstance(event, (Content, Reasoning))]
            assert said == calls[: len(said)]
