"""A pattern of many texts finds what trying each of them would."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.text.tokens.any_of import any_of
from tests.tokens.build import FIXED

WORDS = st.text("ab<|.*é\n", max_size=5)


@given(st.lists(WORDS, max_size=8), st.text("ab<|.*é\n", max_size=30))
@FIXED
def test_the_leftmost_and_of_those_the_longest(words: list[str], text: str) -> None:
    known = sorted(filter(None, words), key=len, reverse=True)
    pattern = any_of(words)
    if not known:
        assert pattern is None
        return
    plain = re.compile("|".join(map(re.escape, known)))
    assert [found.span() for found in pattern.finditer(text)] == [found.span() for found in plain.finditer(text)]
