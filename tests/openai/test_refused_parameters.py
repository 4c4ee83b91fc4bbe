"""Refusals that come from deep inside, of an engine: ``param`` is the request's own name of what is at fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import Capability, EngineError, ErrorKind
from tests.app.harness import USER, gateway, rejected
from tests.app.scripted import MODEL, TOKENS

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


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5, "top_p": 1, "top_k": 0}])
async def test_log_probs_that_are_relative_are_right_where_sampling_does_not_truncate(
    folder: Path, sampling: dict[str, Any]
) -> None:
    async with gateway(folder, features=RELATIVE) as running:
        answer = await running.chat(logprobs=True, **sampling)
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["logprobs"]["content"]


async def test_sampling_that_the_operator_sets_counts(folder: Path) -> None:
    async with gateway(folder, features=RELATIVE, defaults={"top_p": 0.8}) as running:
        assert (await running.chat(logprobs=True)).status_code == 400
        assert (await running.chat(logprobs=True, top_p=1)).status_code == 200


async def test_log_probs_that_are_relative_are_left_out_where_the_policy_says_so(folder: Path) -> None:
    async with gateway(folder, features=RELATIVE, policies={"impossible": "warn"}) as running:
        answer = await running.chat(logprobs=True, top_logprobs=1, temperature=0)
        assert answer.status_code == 200
        assert answer.headers["x-ignored-parameters"] == "logprobs, top_logprobs"
        assert answer.json()["choices"][0]["logprobs"] is None
