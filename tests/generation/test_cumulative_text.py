"""New text out of texts so far: however they grow, the answer is the last one, and nothing of it is taken back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.cumulative_text import CumulativeText
from gateway.generation.engine import MalformedOutputError

BYTES = st.one_of(st.text(max_size=40).map(str.encode), st.binary(max_size=40))
CUTS = st.lists(st.integers(0, 160), max_size=12)
WORDS = st.lists(
    st.sampled_from(
        ["it", " is", " '", " 's", " n", " n't", "'", "s", " ", " .", ",", " 've", "é", "🙂", "\ufffd", "\n"]
    ),
    max_size=30,
)


def grow(texts: list[str]) -> list[str]:
    """The parts that a client is sent of texts so far."""
    reader = CumulativeText()
    return [*(reader.push(text) for text in texts), reader.finish()]


def byte_level(data: bytes) -> str:
    """What a decoder of bytes makes of a part."""
    return data.decode("utf-8", "replace")


def byte_fallback(data: bytes) -> str:
    """What a decoder with byte fallback makes of one run of byte tokens: where it is broken, each byte is replaced."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(data)


def clean_up(words: list[str]) -> str:
    """What Hugging Face's decoders do to the spaces of English."""
    text = "".join(words)
    for old in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
        text = text.replace(old, old.strip())
    return text


@given(BYTES, CUTS)
def test_any_cuts_of_any_bytes_give_the_whole_text(data: bytes, cuts: list[int]) -> None:
    ends = [*sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = grow([byte_level(data[:end]) for end in ends])
    assert "".join(parts) == byte_level(data)


@given(st.text(max_size=40), CUTS)
def test_a_run_of_byte_tokens_may_break_for_a_while(text: str, cuts: list[int]) -> None:
    data = text.encode()
    ends = [*sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert "".join(grow([byte_fallback(data[:end]) for end in ends])) == text


def test_a_run_of_byte_tokens_that_stays_broken_keeps_what_was_sent() -> None:
    assert grow(["a", "a\n", "a\ufffd\ufffd", "a\ufffd\ufffd\ufffd"]) == ["a", "\n", "", "", "\ufffd\ufffd"]
    assert grow(["a", "a中", "a\ufffd\ufffd\ufffd\ufffd", "a\ufffd\ufffd\ufffd\ufffd b"])[-2:] == ["\ufffd b", ""]


@given(WORDS, CUTS)
def test_spaces_that_are_cleaned_up_later_are_not_sent(words: list[str], cuts: list[int]) -> None:
    ends = [*sorted(min(cut, len(words)) for cut in cuts), len(words)]
    assert "".join(grow([clean_up(words[:end]) for end in ends])) == clean_up(words)


@given(st.text("ab\ufffd", max_size=20), CUTS)
def test_texts_that_repeat_say_nothing_new(text: str, cuts: list[int]) -> None:
    ends = [*sorted(min(cut, len(text)) for cut in cuts), len(text)]
    once, twice = ([text[:end] for end in ends for _ in range(times)] for times in (1, 2))
    assert "".join(grow(once)) == "".join(grow(twice)) == text


def test_a_replacement_character_of_the_model_itself_is_sent_when_it_is_certain() -> None:
    assert grow(["a\ufffd", "a\ufffdb", "a\ufffdb\ufffd"]) == ["a", "\ufffdb", "", "\ufffd"]


@pytest.mark.parametrize("texts", [["one two", "one three"], ["one", ""], ["one", "on"], ["a中", "a\ufffd"]])
def test_text_that_is_taken_back_is_an_error(texts: list[str]) -> None:
    with pytest.raises(MalformedOutputError):
        grow(texts)
