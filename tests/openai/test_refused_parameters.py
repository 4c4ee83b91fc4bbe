"""Refusals that come from deep inside, of an engine: ``param`` is the request's own name of what is at fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import Capability, EngineError, ErrorKind
from tests.app.harness import USER, gateway
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
