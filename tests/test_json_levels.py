"""Nested JSON by levels against a plain walk over it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.json_levels import inside, texts


class Name(str):
    """A string of another type."""

    __slots__ = ()


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.text().map(Name)
VALUES = st.recursive(
    LEAVES,
    lambda values: (
        st.lists(values)
        | st.lists(values).map(tuple)
        | st.dictionaries(st.text(), values)
        | st.dictionaries(st.text(), values).map(MappingProxyType)
    ),
    max_leaves=40,
)


def walk(value: Any) -> Iterator[Any]:
    """The value, and all keys and values inside of it."""
    yield value
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield key
            yield from walk(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from walk(each)


@given(VALUES)
def test_levels_have_all_that_a_walk_finds(value: Any) -> None:
    found: list[str] = []
    count, level = 0, [value]
    while level:
        count += len(level)
        found += texts(level)
        level = inside(level)
    expected = list(walk(value))
    assert count == len(expected)
    assert Counter(found) == Counter(each for each in expected if isinstance(each, str))
