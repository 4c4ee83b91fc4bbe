from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.text.families import CallArguments, CallStart, Event
from tests.families.harness import Case, cases, cut_at, families_recorded, fragments
from tests.rings import examples
from tests.tokens.build import FIXED


@pytest.mark.parametrize("family", families_recorded())
def test_any_text_of_fragments_means_the_same_in_any_chunks(family: str) -> None:
    pieces = st.lists(st.sampled_from(fragments(family)), max_size=12).map("".join)

    @settings(FIXED, max_examples=examples(50, long=80))
    @given(pieces, st.sampled_from(cases(family)), st.booleans(), st.lists(st.integers(0, 10_000), max_size=6))
    def check(text: str, case: Case, eager: bool, cuts: list[int]) -> None:
        whole = case.parse([text], eager=eager)
        assert case.parse(text, eager=eager) == whole
        assert case.parse(cut_at(text, cuts), eager=eager) == whole
        names = {tool.name for tool in case.turn.tools}
        _calls_are_sound(whole, names, complete=not (eager or case.guided))

    check()


def _calls_are_sound(events: list[Event], names: set[str], *, complete: bool) -> None:
    starts = [event for event in events if isinstance(event, CallStart)]
    assert [start.index for start in starts] == list(range(len(starts)))
    assert {start.name for start in starts} <= names
    for start in starts:
        text = "".join(e.text for e in events if isinstance(e, CallArguments) and e.index == start.index)
        if complete:
            assert isinstance(json.loads(text), dict)
