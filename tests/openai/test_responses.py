"""Responses: their bytes, statuses, streams and errors, where the answer is text."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import Capability, EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import gateway, rejected, says
from tests.app.scripted import MODEL, ByteIds, Step
from tests.openai.responses_harness import last_of, post, streamed, whole
from tests.openai.tools_harness import GUIDED


def failing(folder: Path, text: str, kind: ErrorKind = ErrorKind.INTERNAL) -> Any:
    """A script that says ``text`` and then fails."""

    def script(_: GenerationRequest) -> list[Step]:
        given: list[Step] = [EngineChunk(ids=[index]) for index in ByteIds(folder).of(text)]
        return [*given, EngineError(kind, "The engine failed.")]

    return script


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
        ({"input": None}, "input", "missing_required_parameter"),
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
        ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
        ({"background": True, "store": False}, "background", "invalid_value"),
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
