"""What a chat request asks of the engine: options, defaults, beams, candidates, limits."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import Capability
from tests.app.harness import gateway
from tests.app.scripted import MODEL, TOKENS, write_tokenizer

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
