"""Whatever a client sends: a 4xx in OpenAI's shape that names the parameter, or service; never a 500."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.api.openai.chat.protocol import ChatCompletionRequest, parse_chat_request
from gateway.api.openai.errors import OpenAIError, from_refusal
from gateway.api.openai.request_json import parse_body
from gateway.settings.model_settings import SamplingDefaults
from gateway.text.bad_request import BadRequestError
from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL
from tests.rings import examples

GOOD: dict[str, Any] = {"model": MODEL, "messages": USER, "max_tokens": 1}


def custom(name: str, form: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, **({"format": form} if form else {})}}


def parsed(body: bytes) -> ChatCompletionRequest:
    return parse_chat_request(parse_body(body).fields)


def rejected(body: bytes | dict[str, Any]) -> OpenAIError:
    with pytest.raises(BadRequestError) as caught:
        parsed(body if isinstance(body, bytes) else json.dumps(body).encode())
    answer = from_refusal(caught.value)
    assert answer.status == 400
    assert answer.type == "invalid_request_error"
    assert answer.message.endswith(".")
    return answer


MESSAGE = {"role": "user", "content": "x"}
TEXT = {"type": "text", "text": "a"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def said(role: Any, **message: Any) -> dict[str, Any]:
    """A conversation of one message."""
    return {"messages": [{"role": role, **message}]}


def chosen(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, kind: {"name": name}}


ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [chosen("custom", "x")]}}
GBNF = {"type": "grammar", "grammar": {"syntax": "gbnf", "definition": "a"}}
MISSING = "missing_required_parameter"
BEAMS = {"use_beam_search": True, "best_of": 2}
CONTINUED = "continue_final_message"


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"model": None}, "model", MISSING),
        ({"model": 7}, "model", "invalid_type"),
        ({"model": ""}, "model", "empty_string"),
        ({"messages": None}, "messages", MISSING),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": ["Hi"]}, "messages[0]", "invalid_type"),
        ({"messages": [{}]}, "messages[0].role", MISSING),
        (said(5, content="x"), "messages[0].role", "invalid_value"),
        (said("function", name="f", content="x"), "messages[0].name", "invalid_value"),
        (said("user", content=None), "messages[0].content", MISSING),
        (said("user", content=5), "messages[0].content", "invalid_type"),
        (said("user", content=[]), "messages[0].content", "empty_array"),
        (said("user", content=[5]), "messages[0].content[0]", "invalid_type"),
        (said("user", content=[{}]), "messages[0].content[0].type", MISSING),
        (said("user", content=[{"type": "text"}]), "messages[0].content[0].text", MISSING),
        (said("user", content=[TEXT, IMAGE]), "messages[0].content[1]", "unsupported_content_part"),
        (said("user", content=[AUDIO]), "messages[0].content[0]", "unsupported_content_part"),
        (said("user", content="x", name=5), "messages[0].name", "invalid_type"),
        (said("tool", content="x"), "messages[0].tool_call_id", MISSING),
        (said("assistant", content=None, tool_calls=[]), "messages[0].content", "invalid_value"),
        (said("assistant", content=[]), "messages[0].content", "invalid_value"),
        (said("assistant", refusal=""), "messages[0].content", "invalid_value"),
        (said("assistant", reasoning_content=""), "messages[0].content", "invalid_value"),
        (said("assistant", reasoning=""), "messages[0].content", "invalid_value"),
        (
            said("assistant", content="x", reasoning="a", reasoning_content="b"),
            "messages[0].reasoning",
            "invalid_value",
        ),
        ({"functions": []}, "functions", "empty_array"),
        ({"safety_identifier": "x" * 129}, "safety_identifier", "string_above_max_length"),
        ({"prompt_logprobs": -1}, "prompt_logprobs", "unsupported_parameter"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type", "invalid_value"),
        ({"tools": ["x"]}, "tools[0]", "invalid_type"),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom", MISSING),
        ({"tools": [custom("a b")]}, "tools[0].custom.name", "invalid_value"),
        ({"tools": [custom("x"), custom("x")]}, "tools[1].custom.name", "invalid_value"),
        ({"tools": [*TOOLS, custom("f")]}, "tools[1].custom.name", "invalid_value"),
        ({"tools": [custom("x", {"type": "json"})]}, "tools[0].custom.format", "invalid_value"),
        ({"tools": [custom("x", {"type": "grammar"})]}, "tools[0].custom.format.grammar", MISSING),
        ({"tools": [custom("x", GBNF)]}, "tools[0].custom.format.grammar.syntax", "invalid_value"),
        ({"tools": TOOLS, "tool_choice": chosen("custom", "x")}, "tool_choice.custom.name", "invalid_value"),
        (
            {"tools": [custom("x")], "tool_choice": chosen("function", "x")},
            "tool_choice.function.name",
            "invalid_value",
        ),
        ({"tools": TOOLS, "tool_choice": {"type": "custom"}}, "tool_choice.custom", MISSING),
        ({"tools": TOOLS, "tool_choice": ALLOWED}, "tool_choice.allowed_tools.tools[0].custom.name", "invalid_value"),
        (said("assistant", tool_calls=[{**CALL, "type": "custom"}]), "messages[0].tool_calls[0].custom", MISSING),
        (
            said("assistant", tool_calls=[{**CALL, "function": {"name": "f"}}]),
            "messages[0].tool_calls[0].function.arguments",
            MISSING,
        ),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"max_tokens": "5"}, "max_tokens", "invalid_type"),
        ({"max_tokens": True}, "max_tokens", "invalid_type"),
        ({"max_tokens": 10**30}, "max_tokens", "integer_above_max_value"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "integer_below_min_value"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "invalid_value"),
        ({"temperature": -0.1}, "temperature", None),
        ({"temperature": 10**400}, "temperature", None),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"top_p": -0.1}, "top_p", None),
        ({"top_p": 1.5}, "top_p", None),
        ({"top_k": -2}, "top_k", None),
        ({"n": 0}, "n", None),
        ({"n": 129}, "n", "integer_above_max_value"),
        ({"seed": 2**63}, "seed", None),
        ({"seed": -(2**63) - 1}, "seed", None),
        ({"presence_penalty": 2.5}, "presence_penalty", None),
        ({"frequency_penalty": -2.5}, "frequency_penalty", None),
        ({"stop": ""}, "stop", None),
        ({"stop": ["a", ""]}, "stop[1]", None),
        ({"stop": ["a", 5]}, "stop[1]", "invalid_type"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", None),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs", None),
        ({"top_logprobs": 3}, "top_logprobs", None),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"stream_options": {"include_usage": True}}, "stream_options", None),
        ({"stream": True, "stream_options": 5}, "stream_options", "invalid_type"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_type"),
        ({"logit_bias": {"x": 5}}, "logit_bias.x", None),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", None),
        ({"logit_bias": {"1": "5"}}, "logit_bias.1", "invalid_type"),
        ({"logit_bias": [1]}, "logit_bias", "invalid_type"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "integer_below_min_value"),
        ({"min_tokens": -1}, "min_tokens", "integer_below_min_value"),
        ({"min_tokens": 2}, "min_tokens", "invalid_value"),
        ({"max_tokens": None, "max_completion_tokens": 1, "min_tokens": 2}, "min_tokens", "invalid_value"),
        ({"min_p": 1.5}, "min_p", None),
        ({"repetition_penalty": 0}, "repetition_penalty", None),
        ({"bad_words": [""]}, "bad_words[0]", None),
        ({"n": 3, "best_of": 2}, "best_of", "invalid_value"),
        ({"best_of": 2, "stream": True}, "best_of", "invalid_value"),
        ({"use_beam_search": True}, "best_of", "invalid_value"),
        (BEAMS | {"stream": True}, "use_beam_search", "invalid_value"),
        (BEAMS | {"n": 2}, "n", "invalid_value"),
        (BEAMS | {"prediction": {"type": "content", "content": "x"}}, "prediction", "invalid_value"),
        ({"prediction": {"type": "content"}}, "prediction.content", MISSING),
        ({"prediction": {"type": "content", "content": []}}, "prediction.content", None),
        ({"prediction": {"type": "guess", "content": "x"}}, "prediction.type", None),
        ({"prediction": "x"}, "prediction", None),
        ({"num_draft_tokens": 257}, "num_draft_tokens", "integer_above_max_value"),
        ({"length_penalty": 2.0}, "length_penalty", "invalid_value"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "invalid_value"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "integer_above_max_value"),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            "stream_options.continuous_usage_stats",
            "invalid_value",
        ),
        ({CONTINUED: True, "add_generation_prompt": True}, CONTINUED, "invalid_value"),
        (said("assistant", content="") | {CONTINUED: True}, "messages", "invalid_value"),
        *(
            (said(role, content="x", **more) | {CONTINUED: True}, CONTINUED, "invalid_value")
            for role, more in (
                ("assistant", {"tool_calls": [CALL]}),
                ("assistant", {"function_call": CALL["function"]}),
                ("system", {}),
                ("developer", {}),
            )
        ),
        ({"echo": True}, "echo", "invalid_value"),
        ({"echo": True, "continue_final_message": True}, "echo", "invalid_value"),
        ({"echo": True, "tools": TOOLS}, "echo", "invalid_value"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort", "invalid_value"),
        ({"documents": ["x"]}, "documents[0]", None),
        ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a", "string_above_max_length"),
        ({"metadata": {"a" * 65: "x"}}, None, "string_above_max_length"),
        ({"metadata": {str(i): "x" for i in range(17)}}, "metadata", None),
        ({"service_tier": "gold"}, "service_tier", "invalid_value"),
        ({"prompt_cache_key": "k" * 513}, "prompt_cache_key", "string_above_max_length"),
        ({"prompt_cache_retention": "1h"}, "prompt_cache_retention", "invalid_value"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_wrong_is_named(change: dict[str, Any], param: str | None, code: str | None) -> None:
    error = rejected(GOOD | change)
    assert error.param
    if param is not None:
        assert error.param == param
    if code is not None:
        assert error.code == code


@pytest.mark.parametrize(
    "change",
    [
        dict.fromkeys(("temperature", "top_p", "top_k", "stop", "seed", "stream", "n", "tools", "logit_bias", "user")),
        {"stream_options": None, "response_format": None, "brand_new": None, "max_tokens": None, "logprobs": None},
        {"n": 1, "tools": [], "logit_bias": {}, "response_format": {"type": "text"}, "modalities": ["text"]},
        {"tool_choice": "none", "parallel_tool_calls": True, "reasoning_effort": "none", "service_tier": "auto"},
        {"user": "u", "metadata": {"a": "b"}, "store": True, "safety_identifier": "s", "prompt_cache_key": "k"},
        {"repetition_penalty": 1, "min_p": 0.0, "min_tokens": 0, "ignore_eos": False},
        {"stop": ["a", "b", "c", "d"]},
        {"stop": []},
        {"temperature": 0, "top_p": 0, "presence_penalty": 2},
        {"seed": 2**63 - 1},
        {"stream": False, "logprobs": False, "top_logprobs": 0},
        {"logprobs": True, "top_logprobs": 0},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": None, "refusal": None}]},
        {"messages": [{"role": "assistant", "content": None, "refusal": "No."}]},
        {"messages": [{"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "a"}]},
        {"messages": [{"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": ""}]},
        {"safety_identifier": "x" * 128},
        {
            "messages": [
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "content": "x", "tool_call_id": "c"},
            ]
        },
    ],
    ids=lambda value: str(value)[:60],
)
async def test_neutral_and_edge_values_are_served_without_a_warning(folder: Path, change: dict[str, Any]) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/v1/chat/completions", json=GOOD | change)
        assert answer.status_code == 200, answer.text
        assert "x-ignored-parameters" not in answer.headers


async def test_unknown_fields_are_served_named_and_counted(folder: Path) -> None:
    body = GOOD | {
        "brand_new": 1,
        "wéird\r\nx-evil: 1": 2,
        "stream": True,
        "stream_options": {"padding": True},
        "messages": [{**MESSAGE, "prefix": True}],
    }
    async with gateway(folder) as running:
        answer = await running.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert answer.headers["x-ignored-parameters"].split(", ") == [
            "stream_options.padding", "brand_new", "w%C3%A9ird%0D%0Ax-evil%3A%201", "messages[0].prefix"
        ]  # fmt: skip
        metrics = (await running.client.get("/metrics")).text
        counter = 'gateway_ignored_parameters_total{model="scripted",parameter='
        assert f'{counter}"brand_new"}} 1.0' in metrics
        assert (f'{counter}"other"}} 2.0' in metrics, "evil" in metrics) == (True, False)
        many = {f"field_{index}": 1 for index in range(500)}
        answer = await running.client.post("/v1/chat/completions", json=GOOD | many)
        assert answer.headers["x-ignored-parameters"].endswith(", ...")
        metrics = (await running.client.get("/metrics")).text
        counts = [float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(counter)]
        assert (len(counts), sum(counts)) == (101, 4 + 500)


async def test_more_stops_than_the_model_allows(folder: Path) -> None:
    five = GOOD | {"stop": ["a", "b", "c", "d", "e"]}
    async with gateway(folder) as running:
        answer = await running.client.post("/v1/chat/completions", json=five)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "stop"
    async with gateway(folder, max_stops=5) as running:
        assert (await running.client.post("/v1/chat/completions", json=five)).status_code == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(sorted(ChatCompletionRequest.model_fields))
messages = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["system", "user", "assistant", "tool"]) | json_values,
            "content": json_values
            | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": json_values}), max_size=2),
            "name": json_values,
            "tool_calls": json_values,
            "function_call": json_values,
        },
    ),
    max_size=3,
)


@settings(max_examples=examples(300))
@given(st.dictionaries(names, json_values, max_size=4), messages)
def test_any_json_is_a_request_or_a_400(fields: dict[str, Any], conversation: Any) -> None:
    body = json.dumps({"model": MODEL, "messages": conversation} | fields).encode()
    with contextlib.suppress(BadRequestError):
        request = parsed(body)
        request.prompt()
        request.options(SamplingDefaults())
        request.given()
        request.unknown_parts()
        request.offered()
        request.forms()
        request.annotations()


@settings(max_examples=examples(200))
@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_400(body: bytes) -> None:
    rejected(body)
