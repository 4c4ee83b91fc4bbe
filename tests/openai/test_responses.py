"""Responses: their bytes, statuses and errors where the answer is text, and bodies that went wrong anywhere."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.api.openai.translation import Translation
from gateway.generation import Capability, EngineChunk, EngineError, ErrorKind, GenerationRequest
from gateway.text.bad_request import BadRequestError
from tests.app.harness import gateway, rejected, says
from tests.app.scripted import MODEL, ByteIds, Step
from tests.openai.responses_harness import events_of, last_of, post, running, streamed, whole
from tests.openai.tools_harness import CITY, GUIDED, UNGUIDED, call_text
from tests.rings import examples


def failing(folder: Path, text: str, kind: ErrorKind = ErrorKind.INTERNAL) -> Any:
    """A script that says ``text`` and then fails."""

    def script(_: GenerationRequest) -> list[Step]:
        given: list[Step] = [EngineChunk(ids=[index]) for index in ByteIds(folder).of(text)]
        return [*given, EngineError(kind, "The engine failed.")]

    return script


@pytest.mark.parametrize(
    ("kind", "status", "retry_after"),
    [
        (ErrorKind.QUEUE_FULL, 429, "1"), (ErrorKind.UNAVAILABLE, 503, "1"),
        (ErrorKind.INTERNAL, 500, None), (ErrorKind.TIMEOUT, 504, None),
    ],
)  # fmt: skip
async def test_an_error_before_the_first_token_has_its_status(
    folder: Path, kind: ErrorKind, status: int, retry_after: str | None
) -> None:
    async with gateway(folder, failing(folder, "", kind)) as running:
        for stream in (False, True):
            answer = await post(running, stream=stream)
            assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)


async def test_what_is_asked_for_is_repeated(folder: Path) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be terse.", "max_output_tokens": 50, "max_tool_calls": 3, "metadata": {"a": "b"},
        "parallel_tool_calls": False, "prompt_cache_key": "k", "safety_identifier": "s", "temperature": 0.5,
        "tool_choice": "none", "top_logprobs": 0, "top_p": 0.25, "user": "me", "truncation": "disabled",
    }  # fmt: skip
    async with gateway(folder) as running:
        for answer in (await whole(running, **asked), await streamed(running, **asked)):
            told = answer.to_dict()
            assert {name: told[name] for name in asked} == asked
            assert (answer.text.to_dict() if answer.text else None) == {"format": {"type": "text"}}
            assert told["reasoning"] == {"effort": None, "summary": None}
            assert (told["store"], told["previous_response_id"], told["service_tier"]) == (True, None, "default")
        params = running.engine.requests[0].params
        assert (params.temperature, params.top_p) == (0.5, 0.25)
        assert running.engine.requests[0].prompt.text.startswith("<|im_start|>system\nBe terse.<|im_end|>")
        plain = await whole(running, store=True, background=False, instructions=None, service_tier="flex")
        assert (plain.temperature, plain.top_p, plain.tool_choice, plain.tools) == (1.0, 1.0, "auto", [])
        assert (plain.to_dict()["store"], plain.service_tier) == (True, "default")


async def test_defaults_of_the_operator_are_told(folder: Path) -> None:
    async with gateway(folder, defaults={"temperature": 0.25, "top_p": 0.5}) as running:
        answer = await whole(running, top_p=0.75)
        assert (answer.temperature, answer.top_p) == (0.25, 0.75)


async def test_an_answer_without_text_has_an_empty_message(folder: Path) -> None:
    async with gateway(folder, says(folder, "")) as running:
        for answer in (await whole(running), await streamed(running)):
            assert [item.type for item in answer.output] == ["message"]
            assert answer.output_text == ""


async def test_an_error_that_overtakes_the_opening_comes_behind_it(folder: Path) -> None:
    """The engine has begun, with a token that makes no character yet, and fails."""
    half = ByteIds(folder).of("é")[:1]

    def script(_: GenerationRequest) -> list[Step]:
        return [EngineChunk(ids=half), EngineError(ErrorKind.INTERNAL, "The engine failed.")]

    async with gateway(folder, script) as running:
        response = last_of((await post(running, stream=True)).text)
        assert (response.status, response.output_text) == ("failed", "")


async def test_an_error_behind_comments_is_a_failed_response(folder: Path) -> None:
    hold = asyncio.Event()
    script = [hold, EngineError(ErrorKind.INTERNAL, "The engine failed.")]
    async with gateway(folder, lambda _: script, timeouts={"headers_s": 0.01}, served=True) as running:
        body = {"model": MODEL, "input": "Hi", "stream": True}
        async with running.client.stream("POST", "/v1/responses", json=body) as answer:
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                hold.set()
        assert text.startswith(":")
        response = last_of(text)
        assert (response.status, response.output, response.usage) == ("failed", [], None)


def asking(part: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": []}, "input", "empty_array"),
        ({"input": 7}, "input", "invalid_type"),
        ({"input": ["Hi"]}, "input[0]", "invalid_value"),
        ({"input": [{}]}, "input[0]", "invalid_value"),
        ({"input": [{"type": 7}]}, "input[0]", "invalid_value"),
        ({"input": [{"role": "robot", "content": "Hi"}]}, "input[0].role", "invalid_value"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content", "invalid_type"),
        (asking({"type": "input_image", "image_url": "data:"}), "input[0].content[0]", "unsupported_content_part"),
        (asking({"type": "input_file", "file_id": "x"}), "input[0].content[0]", "unsupported_content_part"),
        (asking({"type": "input_text"}), "input[0].content[0].text", "missing_required_parameter"),
        ({"instructions": 7}, "instructions", "invalid_type"),
        ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"include": "all"}, "include", "invalid_type"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "invalid_value"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", "missing_required_parameter"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"moderation": {"model": "m"}}, "moderation", "unsupported_parameter"),
        ({"stop": [""]}, "stop[0]", "empty_string"),
        ({"input": "word " * 100}, "input", "context_length_exceeded"),
        ({"input": [{"role": "user", "content": "refuse"}]}, "input", "invalid_value"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format", "unsupported_parameter"),
    ],
)
async def test_bad_input_is_refused_by_the_client_s_own_names(
    folder: Path, body: dict[str, Any], param: str, code: str
) -> None:
    async with gateway(folder) as running:
        for stream in (False, True):
            answer = await post(running, **body, stream=stream) if "stream" not in body else await post(running, **body)
            error = rejected(answer, 400, param, code)
            assert "messages" not in error["message"].replace("These messages are refused", "")
            assert "response_format" not in error["message"]
        assert running.engine.requests == []


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt_cache_options": {"prewarm": False}},
        {"min_tokens": 5, "max_output_tokens": 20},
        {"truncate_prompt_tokens": -1, "max_output_tokens": 100, "input": "word " * 60},
        {"stop": ["a", "b"], "stop_token_ids": [0], "ignore_eos": True, "num_draft_tokens": 0},
        {"text": {"format": {"type": "json_object"}}},
        {"tools": [{"type": "function", "name": "f", "parameters": {}}], "tool_choice": "required"},
        {"thinking_token_budget": 0, "include": ["message.output_text.logprobs"]},
    ],
)
async def test_no_parameter_of_an_answer_contradicts_a_prewarm(folder: Path, asked: dict[str, Any]) -> None:
    able = Capability("native", "")
    served = {**GUIDED.capabilities, "min_tokens": able, "stop_token_ids": able}
    async with gateway(folder, features=dataclasses.replace(GUIDED, capabilities=served)) as running:
        for ask in (whole, streamed):
            warmed = await ask(running, **{**asked, "prompt_cache_options": {"prewarm": True}})
            assert (warmed.status, warmed.output) == ("completed", [])
            assert warmed.usage is not None
            assert warmed.usage.output_tokens == 0
        await post(running, **asked)
        *warming, plain = running.engine.requests
        for request in warming:
            assert (request.max_tokens, request.params.min_tokens) == (1, 0)
            assert request.prompt.ids == plain.prompt.ids  # so that the answer's request finds it in the cache
        assert plain.max_tokens > 1


UNREAD: list[tuple[dict[str, Any], str]] = [
    ({"client_metadata": {"a": "b"}, "prompt_cache_options": {"mode": "x"}, "prompt_cache_retention": "1y"}, ""),
    ({"include": []}, ""),
    ({"include": ["reasoning.encrypted_content", "a.b"]}, "include.reasoning.encrypted_content, include.a.b"),
    ({"truncation": "auto"}, "truncation"),
    ({"truncation": "disabled"}, ""),
    ({"reasoning": {"summary": "auto"}}, ""),
    ({"reasoning": {"summary": "detailed", "context": "auto"}}, "reasoning.context, reasoning.summary"),
    ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
    ({"reasoning": {"effort": "galactic"}}, "reasoning.effort"),
    ({"text": {}}, ""),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"text": {"verbosity": "medium", "tone": "warm"}}, "text.tone"),
    ({"stream_options": {"shape": 1}}, "stream_options.shape"),
    ({"image": {"a": "b"}, "background_options": {"completion_window": "2h"}}, "background_options, image"),
    ({"context_management": [{"type": "x"}], "n": 3, "whatever": {"a": None}}, "context_management, n, whatever"),
]


@pytest.mark.parametrize(("body", "named"), UNREAD)
async def test_what_is_not_read_is_named_and_served(folder: Path, body: dict[str, Any], named: str) -> None:
    async with gateway(folder) as running:
        for stream in (False, True):
            answer = await post(running, **body, stream=stream)
            assert (answer.status_code, answer.headers.get("x-ignored-parameters", "")) == (200, named)


async def test_extensions_of_chat_are_served(folder: Path) -> None:
    async with gateway(folder, says(folder, "Hello")) as running:
        answer = await whole(running, stop="l", seed=7, top_k=5, presence_penalty=1, logit_bias={"3": 1})
        assert answer.output_text == "He"
        params = running.engine.requests[0].params
        assert (params.seed, params.top_k, params.presence_penalty, params.logit_bias) == (7, 5, 1.0, {3: 1.0})


async def test_too_many_items_are_refused_before_each_costs_work(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await post(running, input=[{"role": "user"}] * 16385)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "array_above_max_length")
        parts = [{"type": "input_text", "text": ""}] * 2049
        answer = await post(running, input=[{"role": "user", "content": parts}])
        assert (answer.json()["error"]["param"], answer.status_code) == ("input[0].content", 400)
        answer = await post(running, input=[{"type": "function_call_output", "call_id": "c", "output": parts}])
        assert (answer.json()["error"]["param"], answer.status_code) == ("input[0].output", 400)


# As an agent sends them: all kinds of items and tools, and fields that other servers do not know.
AGENT: dict[str, Any] = {
    "model": MODEL,
    "instructions": "Be terse.",
    "input": [
        {"type": "message", "id": "msg_0", "role": "developer", "content": [{"type": "input_text", "text": "Help."}]},
        {"role": "user", "content": "List the files."},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "**Listing**"}],
         "content": None, "encrypted_content": "b3BhcXVl"},
        {"type": "message", "role": "assistant", "status": "completed", "phase": "commentary",
         "content": [{"type": "output_text", "text": "So.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c1", "name": "close",
         "namespace": "agents", "arguments": '{"city": "x"}'},
        {"type": "custom_tool_call", "id": "ctc_1", "status": "completed", "call_id": "c2", "name": "patch",
         "input": "+"},
        {"type": "function_call_output", "id": "o1", "call_id": "c1", "output": [
            {"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": "data:", "detail": "high"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "item_reference", "id": "rs_1"},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "moon"}]},
        {"type": "compaction", "encrypted_content": "x"},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
    "tools": [
        {"type": "function", "name": "ls", "description": "Lists.", "strict": False, "parameters": CITY},
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [
            {"type": "function", "name": "close", "strict": True, "parameters": CITY}]},
        {"type": "custom", "name": "patch",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
        {"type": "custom", "name": "date", "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "function", "name": "ls"}, {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "agents"}]},
    "parallel_tool_calls": True,
    "reasoning": {"effort": "high", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "store": False,
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "stream_options": {"include_obfuscation": False},
    "max_output_tokens": 60,
    "top_logprobs": 0,
    "metadata": {"a": "b"},
    "prompt_cache_key": "00000000",
    "client_metadata": {"turn_id": "1"},
}  # fmt: skip
# A body may spoil the schema of the tool that the engine calls: then its answer is none, as the client is told.
MISFIT = "The model called 'agents__close' with arguments that do not match the schema of the tool."
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.sampled_from([2**64, -(10**30)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "function", "message", "reasoning", "item_reference", "required", "\u2028", "a" * 300]),
    st.sampled_from([[], {}, [[]], [{}], {"type": 7}, {"type": "function"}, {"role": "user"}, {"type": "x", "id": 1}]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a body."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in pairs:
        yield (*path, key)
        yield from places(child, (*path, key))


@st.composite
def bodies(draw: st.DrawFn, sound: dict[str, Any]) -> dict[str, Any]:
    """A body with one to three places changed, taken away or doubled."""
    body = copy.deepcopy(sound)
    for place in draw(st.lists(st.sampled_from(list(places(sound))), min_size=1, max_size=3)):
        target: Any = body
        try:
            for key in place[:-1]:
                target = target[key]
            action = draw(st.sampled_from(["change", "remove", "double"]))
            if action == "remove":
                del target[place[-1]]
            elif action == "double" and isinstance(target, list):
                target.append(copy.deepcopy(target[place[-1]]))
            else:
                target[place[-1]] = copy.deepcopy(draw(JUNK))  # which later changes may change in turn
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    return body


@pytest.mark.parametrize("features", [UNGUIDED, GUIDED], ids=["unguided", "guided"])
def test_a_body_that_went_wrong(shows: Path, features: Any) -> None:
    with running(shows, features) as (engine, asked):
        engine.say("Sure. " + call_text("agents__close", '{"city": "x"}'), [3])

        @settings(max_examples=examples(180, long=1500))
        @given(body=bodies(AGENT), stream=st.booleans())
        def check(body: dict[str, Any], stream: bool) -> None:
            if isinstance(body.get("stream"), bool) or "stream" not in body:
                body["stream"] = stream
            answer = engine.loop.run_until_complete(asked.client.post("/v1/responses", json=body))
            if MISFIT in answer.text:
                return
            assert answer.status_code in {200, 400, 404}, answer.text
            if answer.status_code == 200:
                # What is repeated of such a body need not be of OpenAI's types.
                response = events_of(answer.text)[-1]["response"] if body["stream"] else answer.json()
                assert response["status"] in {"completed", "incomplete"}
            else:
                error = answer.json()["error"]
                assert error["message"]
                assert error["type"] == "invalid_request_error"
                for word in ("messages[", "response_format", ".function.", "max_completion_tokens"):
                    assert word not in f"{error['param']} {error['message']}"

        check()


ORIGINS = Translation(
    messages=["instructions", "input[0]", "input[2]"],
    tools=["tools[1]"],
    fields={"messages": "input", "response_format": "text.format", "response_format.json_schema": "text.format"},
    parts={
        "tools[0].function.parameters": "tools[1].input_schema",
        "tools[0].function": "tools[1]",
        "messages[1].tool_calls[1].function": "input[1]",
    },
)


@pytest.mark.parametrize(
    ("param", "own"),
    [
        ("messages[7].role", "input[7].role"),
        ("tools[0].function.parameters.type", "tools[1].input_schema.type"),
        ("messages[1].tool_calls[1].function.arguments", "input[1].arguments"),
        ("messages[1].tool_calls[11].function", "input[0].tool_calls[11].function"),
        ("response_formats", "response_formats"),
    ],
)
def test_a_path_is_the_client_s_own(param: str, own: str) -> None:
    assert ORIGINS.path(param) == own
    with pytest.raises(BadRequestError) as rejected, ORIGINS.renaming():
        raise BadRequestError(f"Not '{param}'.", param, "invalid_value")
    assert (rejected.value.param, rejected.value.message) == (own, f"Not '{own}'.")


def test_engine_errors_use_the_same_names() -> None:
    assert ORIGINS.names({"prompt": "messages", "guide": "response_format.json_schema"}) | {} == {
        "messages": "input",
        "response_format": "text.format",
        "response_format.json_schema": "text.format",
        "prompt": "input",
        "guide": "text.format",
    }
