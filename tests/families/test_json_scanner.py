from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.families.json_scanner import MAX_DEPTH, JsonScanner
from tests.families.harness import cut_at
from tests.tokens.build import FIXED

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PIECES = ['{"a"', *':,}[]"\\90-.l \né', "\\u00e", "e+", "true", "nul"]
NEARLY = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def scanned(chunks: list[str]) -> tuple[bool, int]:
    """Whether the text is one value, and how many characters belong to it."""
    scanner = JsonScanner()
    read = 0
    for chunk in chunks:
        read += scanner.scan(chunk, 0)
        if scanner.failed or scanner.complete:
            return scanner.complete, read
    return scanner.end(), read


def strictly(text: str) -> Any:
    def reject(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=reject)


def is_json(text: str) -> bool:
    try:
        strictly(text)
    except ValueError:
        return False
    return True


@FIXED
@given(VALUES, st.booleans(), st.lists(st.integers(0, 1000), max_size=6), st.sampled_from(["", " x", ", 1", "}"]))
def test_a_value_ends_where_it_ends(value: Any, ascii_only: bool, cuts: list[int], after: str) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if ascii_only else None)
    assert scanned(cut_at(text + after, cuts)) == (True, len(text))


@FIXED
@given(NEARLY, st.lists(st.integers(0, 100), max_size=5))
def test_what_is_complete_is_json_and_json_is_complete(text: str, cuts: list[int]) -> None:
    complete, read = scanned(cut_at(text, cuts))
    assert (complete, read) == scanned(list(text)) == scanned([text])
    if complete:
        assert is_json(text[:read])
    if is_json(text):
        assert complete
        assert not text[read:].strip()


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "Infinity",
        "01",
        "+1",
        "1.",
        ".5",
        "'a'",
        '"\n"',
        '"\\x"',
        '"\\u12g4"',
        "{a:1}",
        "[1,]",
        '{"a":1,}',
        "tru e",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    complete, read = scanned([text])
    assert not complete or read < len(text)


def test_depth_is_bounded() -> None:
    assert scanned(["[" * MAX_DEPTH + "]" * MAX_DEPTH]) == (True, 2 * MAX_DEPTH)
    assert scanned(["[" * (MAX_DEPTH + 1)]) == (False, MAX_DEPTH)
