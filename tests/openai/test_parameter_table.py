"""The table of parameters: whole, in step with schemas and its page; from fields to the parameters of an answer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from openai.types import completion_create_params
from openai.types.chat import ChatCompletionStreamOptionsParam
from openai.types.chat import completion_create_params as chat_create_params

from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.generation_fields import GenerationFields
from gateway.api.openai.parameters.check import Policy, check_parameters
from gateway.api.openai.parameters.row import EndpointName
from gateway.api.openai.parameters.table import PARAMETERS, find
from gateway.generation import Capability, EngineError, ErrorKind, SamplingParams
from gateway.settings.model_settings import SamplingDefaults
from gateway.text.bad_request import BadRequestError
from tests.app.harness import USER, gateway, rejected
from tests.app.scripted import MODEL, TOKENS
from tests.openai import peer_parameters as peers
from tools.parameters_page import render

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Policies:
    impossible: Policy = "strict"
    unknown: Policy = "warn"
    hints: Policy = "warn"


OF_OPENAI: tuple[tuple[EndpointName, Any], ...] = (
    ("chat", chat_create_params.CompletionCreateParamsBase.__annotations__),
    ("chat", chat_create_params.CompletionCreateParamsStreaming.__annotations__),
    ("completions", completion_create_params.CompletionCreateParamsBase.__annotations__),
    ("completions", completion_create_params.CompletionCreateParamsStreaming.__annotations__),
)


def test_every_parameter_of_openai_of_other_servers_and_of_requests_has_a_row() -> None:
    options = [f"stream_options.{name}" for name in ChatCompletionStreamOptionsParam.__annotations__]
    requests = ("chat", ChatCompletionRequest.model_fields), ("completions", CompletionRequest.model_fields)
    others = ("chat", peers.CHAT), ("completions", peers.COMPLETIONS), ("chat", options)
    wanted = {(endpoint, name) for endpoint, names in (*OF_OPENAI, *requests, *others) for name in names}
    assert len(wanted) > 200
    assert sorted(each for each in wanted if find(*each) is None) == []
    assert all(row.source == "OpenAI" for to, names in OF_OPENAI for name in names if (row := find(to, name)))


def test_no_parameter_has_two_rows_at_an_endpoint() -> None:
    names = [(endpoint, row.name) for row in PARAMETERS for endpoint in row.endpoints]
    assert len(names) == len(set(names))


def test_the_page_is_in_step() -> None:
    assert (ROOT / "docs" / "reference" / "parameters.md").read_text(encoding="utf-8") == render(ROOT / "triton_repo")


def test_every_neutral_value_passes_whatever_the_model_can() -> None:
    for row in PARAMETERS:
        nothing = {row.name: Capability("impossible", "not here.")}
        for value in (None, *(row.neutral or ())):
            for endpoint in row.endpoints:
                assert (
                    check_parameters(endpoint, {row.name: value}, nothing, Policies("strict", "strict", "strict")).named
                    == ()
                )


@pytest.mark.parametrize(
    ("value", "neutral"), [(0, True), (0.0, True), (False, False), (0.1, False), ("0", False), ([], False)]
)
def test_a_number_is_neutral_by_its_value_and_not_by_its_form(value: Any, neutral: bool) -> None:
    row = find("chat", "min_p")
    assert row is not None
    assert row.is_neutral(value) is neutral


def test_policies_decide() -> None:
    fields = {"min_p": 0.5, "brand_new": 1, "temperature": 0.5, "tools": []}
    with pytest.raises(BadRequestError) as caught:
        check_parameters("chat", fields, {}, Policies())
    assert caught.value.param == "min_p"
    found = check_parameters("chat", fields, {}, Policies("warn", "ignore"))
    assert (found.named, found.counted, found.dropped) == (("min_p",), ("min_p", "brand_new"), frozenset({"min_p"}))
    hinted = {"verbosity": "low", "reasoning_effort": "high", "session_id": "s"}
    assert check_parameters("chat", hinted, {}, Policies()).dropped == hinted.keys()
    with pytest.raises(BadRequestError) as caught:
        check_parameters("chat", hinted, {}, Policies(hints="strict"))
    assert caught.value.param == "verbosity"
    native = {"min_p": Capability("native", "by a tensor.")}
    assert check_parameters("chat", fields, native, Policies()).named == ("brand_new",)
    with pytest.raises(BadRequestError) as caught:
        check_parameters("chat", {"top_k": 11}, {"top_k": Capability("native", "by a tensor.", 10)}, Policies("ignore"))
    assert (caught.value.param, caught.value.code) == ("top_k", "integer_above_max_value")


LEAST_CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "Hi"}


@pytest.mark.parametrize(("kind", "least"), [(ChatCompletionRequest, LEAST_CHAT), (CompletionRequest, COMPLETION)])
def test_a_field_that_is_left_out_means_its_default(kind: type[GenerationFields], least: dict[str, Any]) -> None:
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in kind.model_fields.items()
        if name in names and not field.is_required()
    }
    given = {name: value for name, value in defaults.items() if value is not None}  # null is absent
    assert len(given) > 15
    short, long = (kind.model_validate(fields).sampling_params(SamplingDefaults()) for fields in (least, least | given))
    assert short == long == SamplingParams()


@pytest.mark.parametrize(("path", "least"), [("/v1/chat/completions", LEAST_CHAT), ("/v1/completions", COMPLETION)])
async def test_an_unknown_field_may_have_the_name_of_a_parameter_within(
    folder: Path, path: str, least: dict[str, Any]
) -> None:
    kind = ChatCompletionRequest if least is LEAST_CHAT else CompletionRequest
    names = {field.name for field in dataclasses.fields(SamplingParams)} - kind.model_fields.keys()
    assert {"beam_width", "guide", "end_ids"} <= names
    async with gateway(folder) as running:
        for name in names:
            body = least | {"model": MODEL, "max_tokens": 1, name: 3}
            answer = await running.client.post(path, json=body)
            assert answer.status_code in (200, 400), name  # a parameter of another endpoint may be refused


def test_defaults_of_the_model_hold_where_a_field_is_left_out() -> None:
    defaults = SamplingDefaults(temperature=0.5, top_p=0.25, max_tokens=7)
    request = ChatCompletionRequest.model_validate(LEAST_CHAT | {"top_p": 1.0})
    assert request.sampling_params(defaults) == SamplingParams(temperature=0.5, max_tokens=7)


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
ABLE = replace(
    TOKENS,
    guide_types=frozenset({"json_schema"}),
    capabilities={
        name: Capability("native", "here.") for name in ("prompt_logprobs", "best_of", "response_format", "guided_json")
    },
)


@pytest.mark.parametrize(
    ("path", "body", "blamed", "param"),
    [
        (CHAT, {}, "temperature", "temperature"),
        (CHAT, {}, "prompt", "messages"),
        (CHAT, {"logprobs": True}, "logprobs", "logprobs"),
        (CHAT, {"n": 1, "best_of": 2}, "logprobs", "best_of"),
        (CHAT, {"response_format": SCHEMA}, "guide", "response_format.json_schema.schema"),
        (CHAT, {}, "guide", None),
        (COMPLETIONS, {}, "prompt", "prompt"),
        (COMPLETIONS, {"logprobs": 2}, "top_logprobs", "logprobs"),
        (COMPLETIONS, {"logprobs": 2, "echo": True}, "prompt_logprobs", "echo"),
        (COMPLETIONS, {"prompt_logprobs": 1}, "prompt_logprobs", "prompt_logprobs"),
        (COMPLETIONS, {"best_of": 2}, "logprobs", "best_of"),
        (COMPLETIONS, {"guided_json": {"type": "object"}}, "guide", "guided_json"),
    ],
)
async def test_a_refusal_names_what_the_client_sent(
    folder: Path, path: str, body: dict[str, Any], blamed: str, param: str | None
) -> None:
    failure = EngineError(ErrorKind.INVALID_REQUEST, "No.", "secret", param=blamed, code="unsupported_parameter")
    asked = {"model": MODEL, **({"messages": USER} if path == CHAT else {"prompt": "Hi"}), **body}
    async with gateway(folder, lambda _: [failure], features=ABLE) as running:
        for stream in (False, True)[: 1 if body.keys() & {"best_of", "prompt_logprobs"} else 2]:
            answer = await running.client.post(path, json={**asked, "stream": stream})
            error = answer.json()["error"]
            assert running.engine.requests, answer.text
            assert (answer.status_code, error["message"]) == (400, "No.")
            assert (error["param"], error["code"]) == (param, "unsupported_parameter")


RELATIVE = replace(
    TOKENS,
    logprobs=True,
    max_top_logprobs=20,
    capabilities={
        **dict.fromkeys(
            ("logprobs", "top_logprobs"), Capability("native", "here.", truncated="they would be relative; set x.")
        ),
        "min_p": Capability("native", "here."),
    },
)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"logprobs": True, "temperature": 0}, "logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 2, "top_p": 0.9}, "logprobs"),
        (CHAT, {"best_of": 2, "top_k": 40}, "best_of"),
        (COMPLETIONS, {"logprobs": 0, "top_k": 1}, "logprobs"),
        (COMPLETIONS, {"logprobs": 0, "min_p": 0.1}, "logprobs"),
        ("/v1/responses", {"include": ["message.output_text.logprobs"], "temperature": 0}, "include"),
        ("/v1/responses", {"top_logprobs": 2, "temperature": 0}, "top_logprobs"),
    ],
)
async def test_log_probs_that_are_relative_are_not_served_where_sampling_truncates(
    folder: Path, path: str, body: dict[str, Any], param: str
) -> None:
    given = {CHAT: {"messages": USER}, COMPLETIONS: {"prompt": "Hi"}}.get(path, {"input": "Hi"})
    asked = {"model": MODEL, **given, **body}
    async with gateway(folder, features=RELATIVE) as running:
        answer = await running.client.post(path, json=asked)
        error = rejected(answer, 400, param, "unsupported_parameter")
        assert "they would be relative; set x." in error["message"]
        assert not running.engine.requests


async def test_log_probs_that_are_relative_are_right_where_sampling_does_not_truncate(folder: Path) -> None:
    async with gateway(folder, features=RELATIVE, defaults={"top_p": 0.8}) as running:
        assert (await running.chat(logprobs=True)).status_code == 400  # by what the operator sets
        for sampling in ({"top_p": 1}, {"temperature": 0.5, "top_p": 1, "top_k": 0}):
            answer = await running.chat(logprobs=True, **sampling)
            assert answer.json()["choices"][0]["logprobs"]["content"]


async def test_log_probs_that_are_relative_are_left_out_where_the_policy_says_so(folder: Path) -> None:
    async with gateway(folder, features=RELATIVE, policies={"impossible": "warn"}) as running:
        answer = await running.chat(logprobs=True, top_logprobs=1, temperature=0)
        assert answer.status_code == 200
        assert answer.headers["x-ignored-parameters"] == "logprobs, top_logprobs"
        assert answer.json()["choices"][0]["logprobs"] is None
