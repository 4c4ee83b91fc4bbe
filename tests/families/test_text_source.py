from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.families.markers import Markers
from gateway.text.families.text_source import Steps, TextSource
from tests.families.harness import cut_at
from tests.tokens.build import FIXED

T = TypeVar("T")
WORDS = st.text(alphabet="ab<", min_size=1, max_size=5)
TEXTS = st.text(alphabet="ab<-", max_size=30)


def drive(source: TextSource, steps: Steps[T], chunks: list[str]) -> T:
    """What the steps return once all chunks have come."""
    result: list[T] = []

    def run() -> Generator[None, None, None]:
        result.append((yield from steps))

    running = run()
    next(running, None)
    for chunk in chunks:
        source.push(chunk)
        next(running, None)
    source.end(cut=False)
    next(running, None)
    return result[0]


def rest(source: TextSource) -> str:
    pieces: list[str] = []
    drive(source, source.until(Markers(), pieces.append), [])
    return "".join(pieces)


@FIXED
@given(st.lists(WORDS, min_size=1, max_size=4), TEXTS, st.lists(st.integers(0, 60), max_size=8))
def test_the_marker_that_is_complete_first_is_found(words: list[str], text: str, cuts: list[int]) -> None:
    words = [word for word in set(words) if not any(other in word for other in set(words) - {word})]
    source = TextSource()
    before: list[str] = []
    found = drive(source, source.until(Markers(*words), before.append), cut_at(text, cuts))
    ends = [(text.find(word) + len(word), word) for word in words if word in text]
    if not ends:
        assert (found, "".join(before)) == (None, text)
        return
    end, word = min(ends)
    assert (found, "".join(before), rest(source)) == (word, text[: end - len(word)], text[end:])


def test_what_cannot_begin_a_marker_is_said_at_once() -> None:
    source = TextSource()
    said: list[str] = []
    steps = source.until(Markers("<tool>", "<too>"), said.append)
    next(steps)
    for chunk in ("a<", "to", "o", "k<<to"):
        source.push(chunk)
        next(steps)
    assert said == ["a", "<took<"]


def test_a_marker_in_another_is_refused() -> None:
    with pytest.raises(ValueError, match="another"):
        Markers("<a>", "<a>b")
    with pytest.raises(ValueError, match="empty"):
        Markers("")


@FIXED
@given(TEXTS, st.lists(WORDS, min_size=1, max_size=3), st.lists(st.integers(0, 60), max_size=4))
def test_a_choice_is_read_or_left(text: str, words: list[str], cuts: list[int]) -> None:
    words = [word for word in set(words) if not any(other in word for other in set(words) - {word})]
    source = TextSource()
    found = drive(source, source.choice(*words), cut_at(text, cuts))
    assert found == next((word for word in words if text.startswith(word)), None)
    assert rest(source) == text[len(found or "") :]


@FIXED
@given(TEXTS, st.integers(0, 8), st.lists(st.integers(0, 60), max_size=4))
def test_a_run_has_only_the_wanted_characters_and_is_no_longer_than_wanted(
    text: str, limit: int, cuts: list[int]
) -> None:
    source = TextSource()
    run = drive(source, source.run("ab", limit), cut_at(text, cuts))
    whole = text[: len(text) - len(text.lstrip("ab"))]
    assert run == whole[:limit]
    assert rest(source) == text[len(run) :]
