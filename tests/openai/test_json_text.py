"""Two parsers of JSON text, of which the faster one must read what the slower one reads, or leave it to that."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.openai import json_text, mostly_text
from gateway.openai.json_text import JsonTextError

_ESCAPED = st.sampled_from(
    ['\\"', "\\\\", "\\/", "\\n", "\\u0022", "\\u0000", "\\u00e9", "\\u005c", "\\ud83d\\ude00", "\\ud83d"]
)
_PLAIN = st.sampled_from(["a", "b", ":", ",", "{", "]", " ", "é", "漢", "😀", "u0022", "'"])
_STRING = st.lists(st.one_of(_PLAIN, _PLAIN, _ESCAPED), max_size=5).map(lambda parts: f'"{"".join(parts)}"')
_NUMBER = st.sampled_from(
    ["0", "-0", "7", "-0.0", "1.5", "1e2", "1E400", "9223372036854775807", "9223372036854775808", "0.1", "2e-7", "01",
     "-9223372036854775809", "18446744073709551616", "123456789012345678901234", "1" * 5000, "1."]
)  # fmt: skip
_OTHER = st.sampled_from(["true", "false", "null", "NaN", "-Infinity", "nul", ""])
_SPACE = st.sampled_from(["", "", "", " ", "\n", "\t "])


def _array(items: list[str]) -> str:
    return f"[{','.join(items)}]"


def _object(fields: list[tuple[str, str, str, str]]) -> str:
    return "{" + ",".join(f"{key}{space}:{after}{value}" for key, space, after, value in fields) + "}"


def _objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(_STRING, _SPACE, _SPACE, values), max_size=4).map(_object)


_VALUE = st.recursive(
    st.one_of(_STRING, _STRING, _NUMBER, _OTHER),
    lambda values: st.one_of(st.lists(values, max_size=4).map(_array), _objects(values)),
    max_leaves=12,
)


def outcome(parse: Callable[[bytes], Any], body: bytes) -> Any:
    """What a body is parsed to, with the types of numbers, or why it is not."""
    try:
        return repr(parse(body))
    except JsonTextError as error:
        return error.message, error.param, error.code


@given(st.one_of(_objects(_VALUE), _VALUE))
@example('{"a":1,"a":"\\u0022\\u0022"}')
@example('{"a\\u0000":1}')
@example('\ufeff{"a":1}')
@example('{"":"","":""}')
def test_what_the_faster_parser_takes_is_what_the_slower_one_reads(text: str) -> None:
    body = text.encode()
    read = outcome(mostly_text.parse, body)
    assert read in ("None", outcome(json_text.parse, body))


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_usual_requests_are_read_by_the_faster_parser(ascii_only: bool, indent: int | None) -> None:
    """Calls of tools with JSON in their arguments included."""
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": ": {\\"b\\": 1}"}'}}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": ': "quoted" \\ and\n\ttabs — é 漢 😀'}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    request = {"model": "m", "messages": messages * 100, "temperature": 0.0, "stream": True, "seed": 2**63 - 1}
    for size in (1, 100):
        request["messages"] = messages * size
        body = json.dumps(request, ensure_ascii=ascii_only, indent=indent).encode()
        assert mostly_text.parse(body) == request


@given(st.integers(0, 40), st.integers(0, 3), st.sampled_from([1, 300, 5000]))
def test_another_process_hands_over_the_same_object(count: int, depth: int, size: int) -> None:
    item: object = {"a": [1, "b", None]}
    for _ in range(depth):
        item = [item]
    value = {"a": 1, "b": [item] * count, "c": ["d"] * size, **{f"e{index}": [index] for index in range(size)}, "f": []}
    body = json.dumps(value).encode()
    read = json_text.object_of(json_text.answer(body))
    assert (read, list(read)) == (value, list(value))
    with pytest.raises(JsonTextError, match="given twice"):
        json_text.object_of(json_text.answer(b'{"a":1,"a":2}'))


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), _TEXT),
    lambda values: st.one_of(st.lists(values, max_size=8), st.dictionaries(_TEXT, values, max_size=8)),
    max_leaves=60,
)


@given(st.dictionaries(st.text("abc", max_size=3), _JSON, max_size=8), st.integers(1, 40))
def test_another_process_hands_over_the_same_object_wherever_it_is_cut(value: dict[str, Any], weight: int) -> None:
    with mock.patch.object(json_text, "_PIECE_WEIGHT", weight):
        read = json_text.object_of(json_text.answer(json.dumps(value).encode()))
    assert json.dumps(read) == json.dumps(value)  # the order of fields included


def _nested(levels: int) -> Any:
    value: Any = [[[number] for number in range(20_000)]]
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": {"c": {"anyOf": [{"type": "object", "p": {"d": number}} for number in range(20_000)]}}}},
        {"a": _nested(50)},
        {"a": [{"b": {f"c{number}": {} for number in range(10_000)}} for _ in range(2)]},
        {"a": {f"b{number}": [] for number in range(40_000)}},
    ],
    ids=["alternatives", "deep arrays", "fields of items", "empty arrays"],
)
def test_another_process_hands_over_what_is_nested_in_pieces(value: dict[str, Any]) -> None:
    answered = json_text.answer(json.dumps(value).encode())
    assert json_text.object_of(answered) == value
    lengths, _ = marshal.loads(answered)
    assert max(lengths) < 65536 < sum(lengths)


def test_a_long_name_is_handed_over_once() -> None:
    many = [{"a": {"b": number}} for number in range(5000)]
    body = json.dumps({"n" * 1_000_000: [many, many]}).encode()
    answered = json_text.answer(body)
    assert json_text.object_of(answered) == json.loads(body)
    assert len(answered) < 2 * len(body)


def test_another_process_hands_over_long_texts_in_pieces() -> None:
    value = {"prompt": ["a" * 300_000] * 20, "b": {"c": "d"}}
    answered = json_text.answer(json.dumps(value).encode())
    assert json_text.object_of(answered) == value
    lengths, _ = marshal.loads(answered)
    assert max(lengths) < 2**21 < sum(lengths)


def test_long_arrays_are_refused_by_the_faster_parser_too() -> None:
    body = json.dumps({"messages": [1] * (json_text.MOST_MESSAGES + 1)}).encode()
    with pytest.raises(JsonTextError, match="at most 16384 items"):
        mostly_text.parse(body)
