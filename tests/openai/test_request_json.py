"""Bodies of requests: read as JSON says, within bounds, without characters that no model takes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.api.openai.request_json import parse_body
from gateway.text.bad_request import BadRequestError
from tests.app.harness import gateway
from tests.app.scripted import MODEL

LARGE = 300_000  # bytes
PADDING = "x" * LARGE
_ESCAPED = st.sampled_from(['\\"', "\\\\", "\\/", "\\n", "\\u0022", "\\u00e9", "\\u005c", "\\ud83d\\ude00", "\\ud83d"])
_PLAIN = st.sampled_from(["a", "b", ":", ",", "{", "]", " ", "é", "漢", "😀", "ud800", "'"])
_STRING = st.lists(st.one_of(_PLAIN, _PLAIN, _ESCAPED), max_size=5).map(lambda parts: f'"{"".join(parts)}"')
_NUMBER = st.sampled_from(["0", "7", "-1.5", "1e2", "9223372036854775808", "123456789012345678901234", "0.1", "2e-7"])
_OTHER = st.sampled_from(["true", "false", "null"])
_VALUE = st.recursive(
    st.one_of(_STRING, _STRING, _NUMBER, _OTHER),
    lambda values: st.one_of(
        st.lists(values, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(_STRING, values), max_size=4).map(
            lambda fields: "{" + ",".join(f"{key} : {value}" for key, value in fields) + "}"
        ),
    ),
    max_leaves=12,
)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError
    return dict(pairs)


def _expected(value: Any) -> Any:
    """A value with U+FFFD for lone surrogates; raises where a key has one."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _lone(value) else value
    if isinstance(value, dict):
        if any(map(_lone, value)):
            raise ValueError
        return {key: _expected(child) for key, child in value.items()}
    return [_expected(child) for child in value] if isinstance(value, list) else value


def _lone(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def refusal(body: bytes) -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        parse_body(body)
    return caught.value


@given(_VALUE)
@example(r'"\\ud800\ude00"')
@example(r'"\\\ud800\\\\ude00"')
@example(r'["\ud83d\ude00\ud83d", "\ud83d\ud83d\ude00"]')
@example(r"""{"\ud800": 1}""")
@example(r"""["\udc80\udc81\ud83d\ude00\udcff"]""")
def test_it_is_what_json_says_with_each_lone_surrogate_replaced(text: str) -> None:
    body = b'{"input": %s}' % text.encode()
    try:
        expected = _expected(json.loads(body, object_pairs_hook=_unique))
    except ValueError:
        assert refusal(body)
        return
    found = parse_body(body)
    assert repr(found.fields) == repr(expected)
    assert bool(found.replaced) == (expected != json.loads(body))


@pytest.mark.parametrize("padding", ["", PADDING])
@pytest.mark.parametrize(
    ("text", "says", "param"),
    [
        ('{"a":1,"p":%s,"a":2}', "the key 'a' is duplicated", "a"),
        ('{"p":%s,"a":NaN}', "expected value", None),
        ('{"p":%s,"a":1e999}', "a number in it exceeds the range of a double", None),
        ('{"p":%s,"a":[{"b":-1e999}]}', "a number in it exceeds the range of a double", None),
        ('{"p":%s,"a":' + "1" * 5000 + "}", "more than 4,300 digits", None),
        ('{"p":%s,', "EOF while parsing", None),
        ("[%s]", "it must be a JSON object", None),
        ('{"p":%s,"a":' + "[" * 64 + "]" * 64 + "}", "nested deeper than 64 levels", None),
        ('{"p":%s,"a":' + "[" * 300 + "]" * 300 + "}", "nested deeper than 64 levels", None),
        ('\ufeff{"p":%s}', "it begins with a byte order mark", None),
        ('{"p":%s} x', "trailing characters", None),
    ],
)
def test_what_is_wrong_is_said(padding: str, text: str, says: str, param: str | None) -> None:
    error = refusal((text % json.dumps(padding)).encode())
    assert says in error.message
    assert (error.param, error.code) == (param, None)


def test_no_text_is_what_is_not_utf_8() -> None:
    assert "invalid unicode code point" in refusal(b'{"a":"\xff"}').message


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"a": [1] * 327_681}, "its objects and arrays have more than 327680 items"),
        ({"a": [[]] * 65_536}, "it has more than 65536 objects, arrays and keys"),
        ({f"f{index}": 1 for index in range(65_536)}, "it has more than 65536 objects, arrays and keys"),
        ({"a": [10**4299] * 501}, "its integers of 1,000 digits or more have more than 2000000 digits in total"),
    ],
    ids=["items", "arrays", "keys", "digits"],
)
def test_too_many_parts_are_rejected_by_what_there_is_too_much_of(body: dict[str, Any], says: str) -> None:
    assert says in refusal(json.dumps(body).encode()).message


def test_json_and_source_code_in_texts_are_no_parts() -> None:
    """Six megabytes of a coding agent's history."""
    source = "def f(x: dict[str, int]) -> list[int]:\n    return [x[key] for key in {**x, 'a': 1}]\n"
    tool = json.dumps({"results": [{"path": f"a/{n}.py", "lines": [n, {"text": source}]} for n in range(300)]})
    turn = [{"role": "user", "content": source * 20}, {"role": "tool", "tool_call_id": "c", "content": tool}]
    body = json.dumps({"messages": turn * (6_000_000 // len(json.dumps(turn)))}).encode()
    assert body.count(b"{") + body.count(b":") > 2 * 65_536
    assert parse_body(body).fields == json.loads(body)


@pytest.mark.parametrize("value", ["1" * 3_000_000, [10**4299] * 400, [10**9] * 300_000], ids=["text", "long", "ids"])
def test_digits_that_are_parsed_quickly_are_accepted(value: Any) -> None:
    body = json.dumps({"a": value}).encode()
    assert parse_body(body).fields == {"a": value}


def test_parts_are_counted_beside_long_runs_of_escapes() -> None:
    for shift in range(4):
        strings = ['\\"' * (2**19 + shift), "," * 400_000, "\\" * (2**20 + shift)]
        assert parse_body(json.dumps({"a": strings}).encode()).fields == {"a": strings}
        assert "327680 items" in refusal(json.dumps({"a": [*strings, "a"], "b": [1] * 327_681}).encode()).message


@pytest.mark.parametrize("lone", ["\\u0000", "\\ud800", "\\uDFFF"])
@pytest.mark.parametrize(
    ("field", "param"),
    [
        ('"model": "a%s"', "model"),
        ('"messages": [{"role": "tool", "tool_call_id": "%s"}]', "messages[0].tool_call_id"),
        ('"tools": [{"function": {"name": "%s"}}]', "tools[0].function.name"),
        ('"messages": [{"role": "a%sb"}]', "messages[0].role"),
        ('"stop": ["%s"]', "stop[0]"),
        ('"metadata": {"a%s": 1}', "metadata.a\ufffd"),
    ],
)
def test_a_name_id_or_key_with_a_character_that_is_replaced_is_rejected(lone: str, field: str, param: str) -> None:
    error = refusal(("{" + field % lone + "}").encode())
    assert (error.param, error.code) == (param, "invalid_value")


def test_arguments_of_a_call_may_have_any_keys() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"user_id": "a\0", "name": "b\0"}}
    found = parse_body(json.dumps({"messages": [{"role": "assistant", "content": [call]}]}).encode())
    path = "messages[0].content[0].input"
    assert found.replaced == [f"{path}.user_id", f"{path}.name"]
    call["id"] = "\0"
    error = refusal(json.dumps({"messages": [{"role": "assistant", "content": [call]}]}).encode())
    assert error.param == "messages[0].content[0].id"


def test_long_keys_of_many_replaced_texts_take_no_memory() -> None:
    tracemalloc.start()
    body = json.dumps({"messages": [{"k" * 100_000: ["\0"] * 5000}]}).encode()
    found = parse_body(body)
    assert tracemalloc.get_traced_memory()[1] < 20 * len(body)
    tracemalloc.stop()
    assert (len(found.replaced), max(map(len, found.replaced))) == (33, 80)


def test_many_characters_beside_a_lone_surrogate_are_read() -> None:
    text = "😀 " * 70_000 + "\ud558\ud55c" * 50_000
    body = json.dumps({"input": [text, "\udc80" * 9_000, "a" * 5000 + "\\" * 9_999 + "\udc80"]}).encode()
    found = parse_body(body)
    assert found.fields["input"][0] == text
    assert found.fields["input"][1] == "\ufffd" * 9_000
    assert found.fields["input"][2].endswith("\\\ufffd")
    assert found.replaced == ["input[1]", "input[2]"]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a\0b"}]}, "messages[0].content"),
        ("/v1/completions", {"prompt": "b\0"}, "prompt"),
        ("/v1/responses", {"input": "a\0", "store": False}, "input"),
        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "\0"}]}, "messages[0].content"),
        ("/tokenize", {"prompt": "a\0"}, "prompt"),
    ],
)
async def test_replaced_characters_of_texts_are_named(
    folder: Path, path: str, body: dict[str, Any], named: str
) -> None:
    async with gateway(folder) as running:
        for escape in ("\\u0000", "\\udc00"):
            text = json.dumps({"model": MODEL, **body}).replace("\\u0000", escape)
            headers = {"Content-Type": "application/json"}
            answer = await running.client.post(path, content=text.encode(), headers=headers)
            assert answer.status_code == 200, answer.text
            assert named in answer.headers["x-ignored-parameters"].split(", ")
            other = await running.client.post(path, json=json.loads(text.replace(escape, "\\ufffd")))
            assert other.status_code == 200
            if path != "/tokenize":
                asked, as_replaced = running.engine.requests[-2:]
                assert asked.prompt.ids == as_replaced.prompt.ids


async def test_it_is_stored_as_it_is_shown(folder: Path) -> None:
    async with gateway(folder) as running:
        content = b'{"items": [{"role": "user", "content": "a\\udc00"}]}'
        headers = {"Content-Type": "application/json"}
        made = await running.client.post("/v1/conversations", content=content, headers=headers)
        assert made.headers["x-ignored-parameters"] == "items[0].content"
        listed = (await running.client.get(f"/v1/conversations/{made.json()['id']}/items")).json()["data"]
        assert listed[0]["content"][0]["text"] == "a\ufffd"
