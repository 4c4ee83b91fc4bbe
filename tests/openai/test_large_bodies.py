"""Bodies that would take the process: counted before anything is made of them; what a text holds is no structure."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bad_request import BadRequestError
from gateway.openai import json_text, request_body
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.request_body import as_body, may_hold_null, parse_object
from gateway.openai.validation import validated
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL

LARGE = 300_000  # bytes: parsed in another process
PADDING = "x" * LARGE


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"tokens": [1] * 327_681}, "its arrays and objects have more than 327680 items"),
        ({"tokens": [[]] * 65_536}, "it has more than 65536 objects and arrays"),
        ({f"f{index}": 1 for index in range(65_537)}, "its objects, messages among them, have more than 65536 fields"),
    ],
)
async def test_a_body_of_too_many_parts_is_refused_by_what_there_is_too_much_of(
    folder: Path, body: dict[str, Any], says: str
) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/detokenize", json=body)
        assert (answer.status_code, says in answer.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize("padding", ["", PADDING])
def test_what_is_between_quotes_is_no_structure(padding: str) -> None:
    chance = random.Random(1)
    for size in (10, 1_000, 400_000):
        text = "".join(chance.choices('\\",:[]{}a é😀\n', k=size))
        value = {"a": text, "b": [padding, {text[:100]: [1, 2]}]}
        for ascii_only in (True, False):
            body = json.dumps(value, ensure_ascii=ascii_only).encode()
            assert parse_object(as_body([body[:7], body[7:]])) == value


def test_what_another_process_parses_comes_back_as_it_was() -> None:
    value = {
        "few": {"a": [1]},
        "numbers": {f"{index}": index for index in range(20_000)},
        "objects": {f"{index}": {"a": [index]} for index in range(1000)},
        "array": [{"a": {f"{index}": index for index in range(100)}}] * 100,
        "padding": PADDING,
    }
    parsed = parse_object(as_body([json.dumps(value).encode()]))
    assert parsed == value
    assert list(parsed) == list(value)
    assert list(parsed["objects"]) == list(value["objects"])


def test_structure_is_counted_across_pieces() -> None:
    """Escapes and quotes fall on every edge of a piece, and the count stays right."""
    for shift in range(4):
        strings = ['\\"' * (2**19 + shift), "," * 400_000, "\\" * (2**20 + shift)]
        assert json_text.parse(json.dumps({"a": strings}).encode()) == {"a": strings}
        strings.append("a")
        body = json.dumps({"a": strings, "b": [1] * 327_681}).encode()
        with pytest.raises(json_text.JsonTextError, match="more than 327680 items"):
            json_text.parse(body)


@pytest.mark.parametrize("padding", ["", PADDING])
@pytest.mark.parametrize(
    ("text", "says", "param", "code"),
    [
        ('{"a":1,"p":%s,"a":2}', "the key 'a' is given twice", "a", None),
        ('{"p":%s,"a":"\\u0000"}', "NUL", "a", "invalid_value"),
        ('{"p":%s,"a":{"b":["\\ud800"]}}', "lone surrogate", "a.b[0]", "invalid_value"),
        ('{"p":%s,"a":NaN}', "NaN is not a JSON number", None, None),
        ('{"p":%s,"a":1e999}', "a number in it is too large", None, None),
        ('{"p":%s,', "Expecting property name", None, None),
        ('[%s]', "it must be a JSON object", None, None),
        ('{"p":%s,"a":' + "[" * 70 + "]" * 70 + "}", "nested deeper than 64 levels", None, None),
    ],
)  # fmt: skip
def test_a_large_body_is_refused_as_a_small_one(
    padding: str, text: str, says: str, param: str | None, code: str | None
) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_object(as_body([(text % json.dumps(padding)).encode()]))
    assert says in caught.value.message
    assert (caught.value.param, caught.value.code) == (param, code)


async def test_a_text_that_no_context_holds_is_refused_by_name(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/tokenize", json={"prompt": "a" * (2**23 + 1)})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, "prompt", "string_above_max_length")


async def test_more_calls_in_a_message_than_any_model_makes_are_refused(folder: Path) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    async with gateway(folder) as running:
        answer = await running.chat(messages=[{"role": "assistant", "tool_calls": [call] * 1025}])
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("messages[0].tool_calls", "array_above_max_length")


async def test_many_unknown_fields_are_served_and_named(folder: Path) -> None:
    fields = {f"field_{index}": index for index in range(30_000)}
    async with gateway(folder) as running:
        answer = await running.client.post(
            "/v1/chat/completions", json={"model": MODEL, "messages": USER, "max_tokens": 1, **fields}
        )
        assert answer.status_code == 200
        assert answer.headers["x-ignored-parameters"].endswith(", ...")
        metrics = (await running.client.get("/metrics")).text
        counts = [line for line in metrics.splitlines() if "ignored" in line and f'model="{MODEL}"' in line]
        assert sum(float(line.rpartition(" ")[2]) for line in counts if "_created" not in line) == 30_000


async def test_large_bodies_that_come_together_have_a_bound_in_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = request_body.HeldBodies(most=500_000)
    monkeypatch.setattr(request_body, "_bodies", held)
    whole = json.dumps({"model": MODEL, "prompt": PADDING}).encode()
    first_half_came, go_on = asyncio.Event(), asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield whole[:-1]
        first_half_came.set()
        await go_on.wait()
        yield whole[-1:]

    async with gateway(folder, served=True) as running:
        headers = {"Content-Type": "application/json"}
        slow = asyncio.create_task(running.client.post("/tokenize", content=slow_body(), headers=headers))
        await first_half_came.wait()
        while held.held < len(whole) - 1:  # noqa: ASYNC110 - until the server has read what was sent
            await asyncio.sleep(0)
        refused = await running.client.post("/tokenize", content=whole, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "service_unavailable")
        assert refused.headers["Retry-After"] == "1"
        small = await running.client.post("/tokenize", json={"model": MODEL, "prompt": "Hi"})
        assert small.status_code == 200
        go_on.set()
        assert (await slow).status_code == 400  # it was read: the context is too short for it
        assert held.held == 0
        again = await running.client.post("/tokenize", content=whole, headers=headers)
        assert again.status_code == 400


def test_many_unknown_fields_are_kept_as_few_are() -> None:
    """They pass pydantic by, which would validate all of them in one go; what is wrong with known ones is said."""
    data = {f"unknown_{index}": index for index in range(300)}
    data = {"a": [1], "model": MODEL, **data, "messages": USER, "temperature": 0, "z": None}
    request = validated(ChatCompletionRequest, data)
    assert request == ChatCompletionRequest.model_validate(data)
    assert list(request.model_extra or ()) == [
        name for name in data if name not in ("model", "messages", "temperature")
    ]
    with pytest.raises(BadRequestError) as caught:
        validated(ChatCompletionRequest, {**data, "temperature": "hot"})
    assert caught.value.param == "temperature"


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["null", "a null, b", '{"a":null}', ": null,"]),
        lambda values: st.lists(values) | st.dictionaries(st.sampled_from(["a", "null", "b"]), values),
    ),
    st.sampled_from([None, 2, 40]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:" + " " * 20)]),
)
def test_no_null_of_a_body_is_overlooked(value: object, indent: int | None, separators: tuple[str, str]) -> None:
    body = json.dumps({"field": value}, indent=indent, separators=separators).encode()
    assert may_hold_null(body) or not _has_null(value)


@pytest.mark.parametrize("text", ["null", "it may be null, or not", "`null`", 'null"', " null "])
def test_a_text_about_null_is_none(text: str) -> None:
    assert not may_hold_null(json.dumps({"messages": [{"content": f"so {text} it is"}]}).encode())
