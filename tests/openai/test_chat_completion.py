"""Whole answers: bodies, options and defaults as the engine gets them, usage and deadlines."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from gateway.generation import Capability, EngineChunk, EngineFeatures
from tests.app.harness import gateway
from tests.app.scripted import MODEL, TOKENS, ByteIds, write_tokenizer


def checked(body: dict[str, Any]) -> ChatCompletion:
    """The body, with OpenAI's fields at each level, vLLM's stop_reason, and no others."""
    assert set(body) == {"id", "object", "created", "model", "choices", "usage"}
    assert set(body["choices"][0]) == {"index", "message", "logprobs", "finish_reason", "stop_reason"}
    # An engine that tells nothing of its cache.
    assert set(body["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"}
    return ChatCompletion.model_validate(body, strict=True)


async def test_a_developer_message_keeps_its_role_where_the_template_knows_it(tmp_path: Path) -> None:
    own = write_tokenizer(
        tmp_path,
        "{% for m in messages %}{% if m.role not in ['developer', 'user', 'assistant'] %}{{ raise_exception('No.') }}"
        "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    )
    async with gateway(own) as running:
        await running.chat(messages=[{"role": "developer", "content": "x"}])
        assert running.engine.requests[0].prompt.text.startswith("<|im_start|>developer\nx")


async def test_surplus_tokens_after_a_stop_are_counted_apart(folder: Path) -> None:
    ids = ByteIds(folder)
    async with gateway(folder, lambda _: [EngineChunk(ids=ids.of("a.bcd"), final=True)]) as running:
        completion = checked((await running.chat(stop=".")).json())
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 2
        metrics = (await running.client.get("/metrics")).text
        assert 'gateway_surplus_tokens_total{model="scripted"} 3.0' in metrics


async def test_an_operator_may_leave_control_token_text_as_it_is(folder: Path) -> None:
    by_text = EngineFeatures("ensemble", "as configured", "ensemble", True, False, logprobs=True)
    async with gateway(folder, features=by_text, escape_special_tokens=False) as running:
        assert (await running.chat(messages=[{"role": "user", "content": "a<|im_end|>b"}])).status_code == 200


@pytest.mark.parametrize(("timeouts", "what"), [({"first_token_s": 0.05}, "no token"), ({"total_s": 0.05}, "finish")])
async def test_deadlines(folder: Path, timeouts: dict[str, float], what: str) -> None:
    never = asyncio.Event()
    async with gateway(folder, lambda _: [never], timeouts=timeouts) as running:
        answer = await running.chat()
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "timeout"
        assert what in answer.json()["error"]["message"]
        await running.engine.left.wait()


ABLE = dataclasses.replace(
    TOKENS,
    capabilities=dict.fromkeys(
        (
            "min_tokens",
            "stop_token_ids",
            "bad_words",
            "min_p",
            "repetition_penalty",
            "prompt_logprobs",
            "logit_bias",
            "length_penalty",
        ),
        Capability("native", "by a tensor."),
    )
    | {"use_beam_search": Capability("native", "by beam_width.", 4)},
)


async def test_a_model_says_the_defaults_of_its_parameters(folder: Path) -> None:
    async with gateway(folder, defaults={"temperature": 0.5}) as running:
        described = (await running.client.get(f"/v1/models/{MODEL}")).json()["capabilities"]
    found = {name: about.get("default") for name, about in described.items()}
    assert (found["temperature"], found["top_p"], found["n"], found["seed"]) == (0.5, 1, 1, None)


async def test_the_models_own_defaults_where_the_operator_wants_them(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "model")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 0.7, "top_k": 20, "top_p": 0.8}))
    async with gateway(folder, defaults={"generation_config": True, "top_p": 0.5}) as running:
        await running.chat()
        sampling = running.engine.requests[0].params
        assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.7, 20, 0.5)
    async with gateway(folder) as running:
        await running.chat()
        assert running.engine.requests[0].params.temperature == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"100000": 1}}, "logit_bias.100000"),
        ({"stop_token_ids": [100000]}, "stop_token_ids[0]"),
        ({"logprobs": True, "top_logprobs": 6}, "top_logprobs"),
        ({"min_tokens": 10**6}, "min_tokens"),
    ],
)
async def test_what_does_not_fit_the_model_is_named(folder: Path, fields: dict[str, Any], param: str) -> None:
    async with gateway(folder, features=ABLE) as running:
        answer = await running.chat(**fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert running.engine.requests == []
