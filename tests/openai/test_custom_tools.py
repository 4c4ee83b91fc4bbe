"""Custom tools: their input as it is read from arguments; calls of them in chat completions, whole and streamed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageCustomToolCall

from gateway.api.openai.custom_tools import InputReader, arguments_of
from tests.app.harness import Gateway, gateway, says
from tests.openai.tools_harness import (
    ALL_KINDS,
    GUIDED,
    TOOLS,
    UNGUIDED,
    call_text,
    guided_text,
    whole,
)

PATCH = '*** Begin Patch\n+é "x" \\ 😀\n*** End Patch'
LARK = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}
DATE = {"type": "grammar", "grammar": {"syntax": "regex", "definition": r"\d{4}-\d\d"}}
NATIVE = dataclasses.replace(GUIDED, guide_types=ALL_KINDS)


def custom(name: str, form: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "custom",
        "custom": {"name": name, "description": f"Does {name}.", **({"format": form} if form else {})},
    }


def in_chunks(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


def read(chunks: list[str]) -> tuple[str, str]:
    """What was told before the end, and at the end."""
    reader = InputReader()
    return "".join(map(reader.push, chunks)), reader.finish()


texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\/\n\t😀{}'), max_size=30)


@given(texts, st.booleans(), st.lists(st.integers(0, 400)))
def test_an_input_comes_as_its_arguments_do(text: str, escaped: bool, cuts: list[int]) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=escaped)
    assert read(in_chunks(arguments, cuts)) == (text, "")
    assert json.loads(arguments_of(text)) == {"input": text}


@given(
    st.recursive(texts | st.integers() | st.none(), lambda inner: st.dictionaries(texts, inner) | st.lists(inner))
    | st.dictionaries(st.sampled_from(["input", "patch", "x"]), texts | st.integers())
)
def test_arguments_of_any_form_have_an_input(value: Any) -> None:
    arguments = json.dumps(value)
    expected = arguments
    if isinstance(value, dict):
        only = [*value.values()] if len(value) == 1 else [value.get("input")]
        expected = only[0] if isinstance(only[0], str) else arguments
    assert "".join(read([arguments])) == expected


@given(st.text(st.sampled_from('{}"input:\\ud83e0 a,'), max_size=40), st.lists(st.integers(0, 60)))
def test_any_text_is_read_the_same_in_any_chunks(rest: str, cuts: list[int]) -> None:
    for arguments in (rest, '{"input": "' + rest):
        told = "".join(read(in_chunks(arguments, cuts)))
        assert told == "".join(read([arguments]))
        told.encode()  # no half of a character


@given(texts, st.integers(0, 400))
def test_an_input_that_is_cut_is_the_beginning_of_it(text: str, cut: int) -> None:
    arguments = json.dumps({"input": text})
    prefix = arguments[: len('{"input": "') + cut]
    assert text.startswith("".join(read([prefix])))


async def streamed(running: Gateway, **body: Any) -> list[dict[str, Any]]:
    """The chunks of a stream; the SDK's type of a chunk knows functions alone, everything else is held to it."""
    answer = await running.chat(stream=True, max_tokens=500, **body)
    assert answer.status_code == 200, answer.text
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    for event in events:
        chunk = json.loads(event)
        for call in chunk["choices"][0]["delta"].get("tool_calls", []):
            if call.get("type") == "custom":
                del call["type"]
        ChatCompletionChunk.model_validate(chunk, strict=True)
    return chunks


def calls_of(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls of a stream, put together: id, type and name come once, with the first of each."""
    calls: list[dict[str, Any]] = []
    for part in (part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", [])):
        index = part.pop("index")
        if "id" in part:
            assert index == len(calls)
            calls.append(part)
            assert part[part["type"]][{"custom": "input", "function": "arguments"}[part["type"]]] == ""
        else:
            kind = calls[index]["type"]
            (field, text), *rest = part[kind].items()
            assert (rest, set(part)) == ([], {kind})
            calls[index][kind][field] += text
    return calls


async def test_calls_of_custom_tools(shows: Path) -> None:
    said = f"{call_text('apply_patch', json.dumps({'input': PATCH}))}\n{call_text('time', '{}')}"
    async with gateway(shows, says(shows, said), features=UNGUIDED, max_seq_len=8192) as running:
        for tool in (custom("apply_patch"), custom("apply_patch", {"type": "text"}), custom("apply_patch", LARK)):
            answer = await whole(running, tools=[*TOOLS, tool])
            (choice,) = answer.choices
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
            first, second = choice.message.tool_calls or []
            assert isinstance(first, ChatCompletionMessageCustomToolCall)
            assert (first.custom.name, first.custom.input, second.type) == ("apply_patch", PATCH, "function")
            chunks = await streamed(running, tools=[*TOOLS, tool])
            calls = calls_of(chunks)
            assert [call.pop("id")[:5] for call in calls] == ["call_", "call_"]
            assert calls == [
                {"type": "custom", "custom": {"name": "apply_patch", "input": PATCH}},
                {"type": "function", "function": {"name": "time", "arguments": "{}"}},
            ]
            assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
        shown = json.loads(running.engine.requests[-1].prompt.text.partition("<|im_start|>")[0].split("<tool>")[-1])
        assert shown["function"]["description"] == (
            "Does apply_patch.\n\nThe input follows this grammar (lark):\nstart: /.+/"
        )
        named = await running.chat(tools=[custom("apply_patch", LARK)])
        assert named.headers["x-ignored-parameters"] == "tools[0].custom.format"  # shown, but not enforced
        assert "x-ignored-parameters" not in (await running.chat(tools=[custom("apply_patch")])).headers


async def test_a_guided_input_streams_as_it_forms_and_may_be_cut(shows: Path) -> None:
    said = guided_text(("patch", {"input": PATCH}), ("patch", {"input": "x"}))
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "patch"}}]}}  # noqa: E501  # fmt: skip
    async with gateway(shows, says(shows, said), features=GUIDED, max_seq_len=8192) as running:
        chunks = await streamed(running, tools=[*TOOLS, custom("patch")], tool_choice=choice)
        assert sum("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks) > 20
        assert [call["custom"]["input"] for call in calls_of(chunks)] == [PATCH, "x"]
        answer = await running.chat(tools=[custom("patch")], tool_choice=choice, max_tokens=60)
        (cut,) = ChatCompletion.model_validate(answer.json(), strict=True).choices
        assert cut.finish_reason == "length"
        (call,) = cut.message.tool_calls or []
        assert isinstance(call, ChatCompletionMessageCustomToolCall)
        assert PATCH.startswith(call.custom.input)
        assert call.custom.input


@pytest.mark.parametrize(
    ("features", "choice", "guided"),
    [(NATIVE, "auto", True), (GUIDED, "required", True), (GUIDED, "auto", False), (UNGUIDED, "auto", False)],
)
async def test_a_regular_expression_is_enforced_where_the_engine_can(
    shows: Path, features: Any, choice: str, guided: bool
) -> None:
    said = guided_text(("date", {"input": "2026-11"})) if choice == "required" else call_text("date", '{"input": "x"}')
    async with gateway(shows, says(shows, said), features=features, max_seq_len=4096) as running:
        answer = await running.chat(tools=[custom("date", DATE)], tool_choice=choice, max_tokens=500)
        assert answer.status_code == 200, answer.text
        named = answer.headers.get("x-ignored-parameters")
        assert named == (None if guided else "tools[0].custom.format")
        guide = running.engine.requests[0].params.guide
        assert (guide is not None and r"\\d{4}" in guide.text.replace("[0-9]", r"\\d")) == guided


async def test_earlier_calls_reach_the_model_as_those_of_functions(shows: Path) -> None:
    arguments = json.dumps({"input": PATCH}, ensure_ascii=False, separators=(",", ":"))
    calls = (
        {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": PATCH}},
        {"id": "c1", "type": "function", "function": {"name": "patch", "arguments": arguments}},
    )
    async with gateway(shows, says(shows, "Ok."), features=UNGUIDED, max_seq_len=8192) as running:
        for call in calls:
            messages = [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
            ]
            answer = await running.chat(messages=messages, tools=[custom("patch")])
            assert answer.status_code == 200, answer.text
        first, second = (request.prompt.text for request in running.engine.requests)
        assert first == second
        assert f"<call>c1 {json.dumps({'input': PATCH}, ensure_ascii=False)}" in first
        assert "<result c1" in first
