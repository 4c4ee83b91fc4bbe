"""Bad input against the running stack, by both paths: a clear 4xx in OpenAI's shape, never a 500, never a hang."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.clients.conftest import TINY as MODEL
from tests.stack import GatewayProcess

USER = [{"role": "user", "content": "Hi"}]
GOOD: dict[str, Any] = {"model": MODEL, "messages": USER, "max_tokens": 1, "temperature": 0}


@pytest.fixture
def gateway(tiny_gateway: GatewayProcess) -> GatewayProcess:
    return tiny_gateway


def post(gateway: GatewayProcess, body: bytes | dict[str, Any], path: str = "/v1/chat/completions") -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(gateway.url + path, content=content, headers={"content-type": "application/json"}, timeout=30)


def error_of(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert "Traceback" not in body["error"]["message"]
    return dict(body["error"])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="malformed"),
        pytest.param(b"[]", id="not an object"),
        pytest.param(b'{"model": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", id="10,000 deep"),
        pytest.param(b'{"model": "a", "model": "b", "messages": []}', id="duplicate keys"),
        pytest.param(b'{"model": "\xff\xfe"}', id="invalid UTF-8"),
        pytest.param(b'{"model": "\\ud800", "messages": [{"role": "user", "content": "x"}]}', id="lone surrogate"),
        pytest.param(json.dumps(GOOD)[:-1].encode() + b', "top_p": NaN}', id="NaN"),
        pytest.param(json.dumps(GOOD)[:-1].encode() + b', "top_p": 1e999}', id="infinite"),
    ],
)
def test_a_body_that_is_not_sound_json(gateway: GatewayProcess, body: bytes) -> None:
    error = error_of(post(gateway, body))
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "a\u0000b", "content": "a"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
        ),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"seed": 2**70}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"response_format": {"type": "json"}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "map"}}}},
            "response_format.json_schema.schema.type",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_value_out_of_range_names_its_parameter(gateway: GatewayProcess, change: dict[str, Any], param: str) -> None:
    error = error_of(post(gateway, GOOD | change))
    assert error["type"] == "invalid_request_error"
    assert error["param"] is not None
    assert error["param"].startswith(param)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": None, "top_p": None, "stop": None, "seed": None, "stream": None, "n": None, "tools": None},
        {"top_p": 0},
        {"seed": -5},
        {"seed": -(2**63)},
        {"n": 1},
        {"tools": []},
        {"logit_bias": {}},
        {"response_format": {"type": "text"}},
        {"user": "someone", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
        {"messages": [*USER, {"role": "assistant", "content": ""}, *USER]},
        {"stop": ["a", "b", "c", "d"]},
        {"messages": [{"role": "user", "content": ""}]},
    ],
    ids=lambda value: str(value)[:60],
)
def test_neutral_and_edge_values_are_served(gateway: GatewayProcess, change: dict[str, Any]) -> None:
    answer = post(gateway, GOOD | change)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] <= 1


def test_a_temperature_next_to_nothing_is_greedy(gateway: GatewayProcess) -> None:
    def text(temperature: float, seed: int) -> str:
        body = GOOD | {"temperature": temperature, "seed": seed, "max_tokens": 12}
        return str(post(gateway, body).json()["choices"][0]["message"]["content"])

    greedy = text(0, 1)
    assert {text(1e-30, seed) for seed in (1, 2, 3)} == {greedy}
    assert text(1, 1) != greedy


def test_an_unknown_field_is_served_and_named(gateway: GatewayProcess) -> None:
    answer = post(gateway, GOOD | {"brand_new_field": 1})
    assert answer.status_code == 200
    assert answer.headers["x-ignored-parameters"] == "brand_new_field"


def test_a_body_over_16_mib_is_413(gateway: GatewayProcess) -> None:
    error = error_of(post(gateway, GOOD | {"user": "x" * (16 * 2**20)}), 413)
    assert "16" in error["message"]


def test_wrong_path_and_method(gateway: GatewayProcess) -> None:
    assert error_of(post(gateway, GOOD, "/v1/nothing"), 404)["type"] == "invalid_request_error"
    error_of(httpx.get(gateway.url + "/v1/chat/completions"), 405)
