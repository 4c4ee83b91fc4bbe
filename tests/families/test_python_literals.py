from __future__ import annotations

import ast
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.families.literals import LiteralReader
from gateway.text.families.text_source import BrokenCallError, TextSource
from tests.families.harness import cut_at
from tests.tokens.build import FIXED

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def as_json(chunks: list[str]) -> str | None:
    """The literal as JSON text; None when it is none, or something follows it."""
    source = TextSource()
    pieces: list[str] = []
    result: list[bool] = []

    def run() -> Any:
        with suppress(BrokenCallError):
            yield from LiteralReader(source, pieces.append).value()
            result.append(True)
        yield from source.space()
        result.append((yield from source.more()))

    steps = run()
    next(steps, None)
    for chunk in chunks:
        source.push(chunk)
        next(steps, None)
    source.end(cut=False)
    next(steps, None)
    return "".join(pieces) if result == [True, False] else None


def plain(value: Any) -> Any:
    """The value with tuples as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return {key: plain(part) for key, part in value.items()} if isinstance(value, dict) else value


@FIXED
@given(VALUES, st.lists(st.integers(0, 1000), max_size=6))
def test_a_literal_is_the_json_of_its_value(value: Any, cuts: list[int]) -> None:
    text = as_json(cut_at(repr(value), cuts))
    assert text is not None
    assert json.loads(text) == plain(ast.literal_eval(repr(value)))


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'''a'b\"'''", "a'b\""),
        ('""', ""),
        ("'\\x41\\101\\0\\d'", "AA\0\\d"),
        ("'a\\\nb'", "ab"),
        ("r'\\d\\'+'", "\\d\\'+"),
        ("u'a'", "a"),
        ("'''he said \"hi\" and 'ho' '''", "he said \"hi\" and 'ho' "),
        ('"it\'s \\"so\\""', 'it\'s "so"'),
        ("1_000", 1000),
        ("-.5", -0.5),
        ("2.", 2.0),
        ("+3", 3),
        ("00", 0),
        ("007.50", 7.5),
        ("01e2", 100.0),
        ("0x1F", 31),
        ("-0b11", -3),
        ("0o17", 15),
        ("1_0.5_0e1_0", 10.5e10),
        ("()", []),
        ("(1,)", [1]),
        ("(1)", 1),
        ("(('a'))", "a"),
        ("(1, (2, 3),)", [1, [2, 3]]),
        ("{1, 2}", [1, 2]),
        ("{'a', 'b',}", ["a", "b"]),
        ("{None}", [None]),
        ("{}", {}),
        ("{'a': {'b'}, 'c': [{}]}", {"a": ["b"], "c": [{}]}),
        ("{'a': true, \"b\": null,}", {"a": True, "b": None}),
        ("'\\ud83d\\ude00'", "😀"),
    ],
)
def test_forms_of_literals(literal: str, value: Any) -> None:
    assert json.loads(as_json([literal]) or "") == value
    assert as_json(list(literal)) == as_json([literal])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1 2",
        "01",
        "1__0",
        "1_",
        "0xG",
        "5j",
        "1-2",
        "b'a'",
        "rb'a'",
        "-007",
        "0_7",
        "1_.5",
        "--1",
        "{1, (2,)}",
        "(,)",
        "'\\N{BULLET}'",
        "'he said 'hi''",
        "'''a''''",
        "1e",
        ".",
        "f'a'",
        "'a",
        "'a' 'b'",
        "[1 2]",
        "{1: 2}",
        "{'a': 1, 'b'}",
        "{'a', 'b': 1}",
        "{[1]}",
        "{1, {}}",
        "{,}",
        "[1,,2]",
        "set()",
        "'\\x4'",
        "[",
    ],
)
def test_what_is_no_literal_is_refused(text: str) -> None:
    assert as_json([text]) is None
    assert as_json(list(text)) is None


def test_depth_is_bounded() -> None:
    assert as_json(["[" * 64 + "]" * 64]) is not None
    assert as_json(["[" * 65 + "]" * 65]) is None
