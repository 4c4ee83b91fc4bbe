from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation import StopMatcher
from tests.tokens.build import FIXED

WORDS = st.text(alphabet="ab]^", min_size=1, max_size=5)
STOPS = st.lists(WORDS, max_size=4).map(tuple)
TEXT = st.text(alphabet="ab]^-", max_size=40)


def reference(stops: tuple[str, ...], text: str) -> tuple[str | None, str]:
    """By definition: the match that is complete first, and of those the longest."""
    for stop_end in range(len(text) + 1):
        found = [stop for stop in stops if text[:stop_end].endswith(stop)]
        if found:
            best = max(found, key=len)
            return best, text[: stop_end - len(best)]
    return None, text


def held_back(stops: tuple[str, ...], text: str) -> int:
    """By definition: the longest end of the text that begins some stop."""
    return max((k for k in range(len(text) + 1) for stop in stops if stop.startswith(text[len(text) - k :])), default=0)


def chunks(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@FIXED
@given(STOPS, TEXT, st.lists(st.integers(0, 40), max_size=12))
def test_any_chunking_gives_what_the_definition_says(stops: tuple[str, ...], text: str, cuts: list[int]) -> None:
    matcher = StopMatcher(stops)
    shown, seen = "", ""
    expected, before = reference(stops, text)
    for chunk in chunks(text, cuts):
        shown += matcher.push(chunk)
        seen += chunk
        assert before.startswith(shown)
        if matcher.matched is None:
            assert len(shown) == len(seen) - held_back(stops, seen)
    if matcher.matched is None:
        shown += matcher.flush()
    assert (matcher.matched, shown) == (expected, before)
    if expected is not None:
        assert (matcher.position, matcher.end) == (len(before), len(before) + len(expected))
        assert matcher.push("more") == matcher.flush() == ""


@FIXED
@given(STOPS, TEXT, st.lists(st.integers(0, 40), max_size=12))
def test_what_is_taken_is_what_would_be_pushed(stops: tuple[str, ...], text: str, cuts: list[int]) -> None:
    taking, pushing = StopMatcher(stops), StopMatcher(stops)
    for chunk in chunks(text, cuts):
        expected, taken = pushing.push(chunk), taking.take(chunk)
        if pushing.matched is not None:
            assert (taken, taking.matched) == (None, None)
            assert taking.push(chunk) == expected
            break
        assert taken == expected
    assert (taking.matched, taking.position, taking.end) == (pushing.matched, pushing.position, pushing.end)
    assert taking.flush() == pushing.flush()


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(("a", ""))


def test_work_is_linear_in_text_that_nearly_matches() -> None:
    """The naive way (comparing the tail with every prefix) needs some 10^10 steps here."""
    matcher = StopMatcher(("a" * 50_000 + "b", "a" * 49_999 + "c"))
    began = time.process_time()
    shown = sum(len(matcher.push("a" * 20)) for _ in range(5_000))
    assert shown == 50_000
    assert len(matcher.flush()) == 50_000
    assert time.process_time() - began < 5
