"""Calls of a model that knows nothing, held by guides in the forms of many families: on the real Triton and engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from tests.clients.conftest import TINY_MAX_SEQ_LEN
from tests.stack import GatewayProcess

TEMPLATE = Path(__file__).resolve().parents[2] / "chat_templates" / "hermes.jinja"
FORMS = {
    "hermes": '<tool_call>\n{"name": "',
    "qwen3": '<tool_call>\n{"name": "',
    "llama3_json": '{"name": "',
    "mistral": '[TOOL_CALLS][{"name": "',
    "mistral_v11": "[TOOL_CALLS]",
    "deepseek_v3": "<｜tool▁calls▁begin｜>",  # noqa: RUF001
    "kimi": "<|tool_calls_section_begin|>",
    "harmony": "<|channel|>commentary to=functions.",
    "glm": "<tool_call>",
    "qwen3_coder": "<tool_call>\n<function=",
    "deepseek_v32": "<｜DSML｜function_calls>",  # noqa: RUF001
    "lfm2": "<|tool_call_start|>[",
    "gemma4": "<|tool_call>call:",
}
"""Beginnings of calls by families: one or two for each grammar."""
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["unit", "days"],
        "additionalProperties": False,
    },
    "clock": {
        "type": "object",
        "properties": {"utc": {"type": "boolean"}},
        "required": ["utc"],
        "additionalProperties": False,
    },
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in SCHEMAS.items()
]
FORM = {
    "type": "json_schema",
    "json_schema": {
        "name": "place",
        "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    },
}
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is the weather, and what time is it?"}],
    "tools": TOOLS,
    "temperature": 1.5,
    "max_tokens": 400,
    "parallel_tool_calls": False,  # a model that draws its words would make calls without end
    "extra_body": {"thinking_token_budget": 3},  # of a model that would think without end
}


@pytest.fixture(scope="module")
def sdk(triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A gateway where the model is served as one of each family."""
    folder = tmp_path_factory.mktemp("guided-families")
    served = {
        "triton": {"url": triton.grpc_url},
        "tokenizer": str(tiny_model_dir),
        "template": str(TEMPLATE),
        "max_seq_len": TINY_MAX_SEQ_LEN,
        "path": "tokens",
    }
    models = [{"name": family, "family": family, **served} for family in FORMS]
    (folder / "settings.yaml").write_text(json.dumps({"models": models}))
    with (
        GatewayProcess(folder / "log", GATEWAY_CONFIG=str(folder / "settings.yaml")) as process,
        OpenAI(base_url=f"{process.url}/v1", api_key="unused", max_retries=0, timeout=60) as client,
    ):
        yield client


def check(name: str, arguments: str) -> None:
    jsonschema.validate(json.loads(arguments), SCHEMAS[name])


def written(choice: Any) -> str:
    """All that the model wrote, the format of its calls included."""
    tokens = choice.logprobs.content
    return b"".join(bytes(token.bytes) for token in tokens).decode(errors="replace")


@pytest.mark.parametrize("family", FORMS)
def test_demanded_calls_have_the_familys_form(sdk: OpenAI, family: str) -> None:
    answer = sdk.chat.completions.create(model=family, tool_choice="required", logprobs=True, seed=1, **ASKED)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    check(call.function.name, call.function.arguments)
    assert FORMS[family] in written(choice)


def test_several_calls_are_a_row_in_the_familys_form(sdk: OpenAI) -> None:
    asked = {**ASKED, "parallel_tool_calls": True, "tool_choice": "required", "logprobs": True}
    (choice,) = sdk.chat.completions.create(model="kimi", seed=1, **asked).choices
    *calls, last = choice.message.tool_calls or []
    assert calls
    for call in calls if choice.finish_reason == "length" else [*calls, last]:
        assert call.type == "function"
        check(call.function.name, call.function.arguments)
    assert written(choice).count(FORMS["kimi"]) == 1
    assert written(choice).count("<|tool_call_begin|>functions.") >= len(calls)


@pytest.mark.parametrize("family", FORMS)
def test_a_named_call_streams_in_the_familys_form(sdk: OpenAI, family: str) -> None:
    named: Any = {"type": "function", "function": {"name": "clock"}}
    stream = sdk.chat.completions.create(model=family, tool_choice=named, stream=True, seed=2, **ASKED)
    content, calls = "", []
    for chunk in stream:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for piece in delta.tool_calls or []:
            assert piece.function
            if piece.function.name:
                calls.append([piece.function.name, ""])
            calls[piece.index][1] += piece.function.arguments or ""
    assert content == ""
    ((name, arguments),) = calls
    assert name == "clock"
    check(name, arguments)


@pytest.mark.parametrize("family", FORMS)
def test_a_free_answer_is_a_strict_call_or_of_the_form_asked_for(sdk: OpenAI, family: str) -> None:
    kinds = set()
    for seed in range(6):
        answer = sdk.chat.completions.create(model=family, response_format=FORM, seed=seed, **ASKED)  # type: ignore[call-overload]
        message = answer.choices[0].message
        kinds.add(bool(message.tool_calls))
        for call in message.tool_calls or []:
            check(call.function.name, call.function.arguments)
        if not message.tool_calls:
            assert set(json.loads(message.content)) >= {"ok"}
    assert True in kinds
