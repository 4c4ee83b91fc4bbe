"""What a chat request asks of the engine: options, defaults, beams, candidates, limits."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import Capability, EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import gateway
from tests.app.scripted import MAX_SEQ_LEN, MODEL, TOKENS, ByteIds, Step, chunks, write_tokenizer

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


async def test_options_reach_the_engine(folder: Path) -> None:
    ids = ByteIds(folder)
    async with gateway(folder, lambda _: chunks(ids.of("Hello")), features=ABLE) as running:
        answer = await running.chat(
            max_completion_tokens=9, min_tokens=2, stop_token_ids=[7], include_stop_str_in_output=True, min_p=0.1,
            repetition_penalty=1.5, logit_bias={"5": -100, "6": 100, "7": 1.5}, bad_words=["no"], ignore_eos=True,
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        (request,) = running.engine.requests
        assert (request.max_tokens, request.params.min_tokens, request.params.stop_token_ids, request.end_ids) == (
            9,
            2,
            (7,),
            (),
        )
        assert request.params.include_stop_str_in_output
        assert request.cached_tokens
        assert (request.params.min_p, request.params.repetition_penalty) == (0.1, 1.5)
        assert request.params.logit_bias[7] == 1.5
        assert request.params.logit_bias[5] == -request.params.logit_bias[6] < -1000
        assert tuple(ids.of("no")) in request.bad_word_ids
        assert tuple(ids.of(" no")) in request.bad_word_ids
        assert request.params.bad_words == ("no",)


async def test_n_requests_have_seeds_in_a_row(folder: Path) -> None:
    async with gateway(folder) as running:
        body = (await running.chat(n=3, seed=-2)).json()
        assert [request.seed for request in running.engine.requests] == [2**64 - 2, 2**64 - 1, 0]
        assert len({request.id for request in running.engine.requests}) == 3
        assert [choice["message"]["content"] for choice in body["choices"]] == ["Hello"] * 3
        assert body["usage"]["completion_tokens"] == 15
        assert body["usage"]["prompt_tokens"] == len(running.engine.requests[0].prompt.ids)


async def test_beams(folder: Path) -> None:
    async with gateway(folder, features=ABLE) as running:
        answer = await running.chat(use_beam_search=True, best_of=3, length_penalty=2)
        assert len(answer.json()["choices"]) == 1
        (request,) = running.engine.requests
        assert (request.params.beam_width, request.params.length_penalty, request.params.logprobs) == (3, 2.0, False)
        error = (await running.chat(use_beam_search=True, best_of=5)).json()["error"]
        assert (error["param"], error["code"]) == ("best_of", "integer_above_max_value")


async def test_candidates_are_ranked_by_log_prob_per_token(folder: Path) -> None:
    ids = ByteIds(folder)
    likely = {1: ("long and likely", -0.1), 2: ("no", -2.0), 3: ("so", -0.5)}

    def script(request: GenerationRequest) -> list[Step]:
        assert request.params.logprobs
        text, logprob = likely[request.seed]
        return [*(EngineChunk(ids=[index], logprobs=[logprob]) for index in ids.of(text)), EngineChunk(final=True)]

    async with gateway(folder, script) as running:
        body = (await running.chat(n=2, best_of=3, seed=1)).json()
        assert [choice["message"]["content"] for choice in body["choices"]] == ["long and likely", "so"]
        assert [choice["index"] for choice in body["choices"]] == [0, 1]
        assert all(choice["logprobs"] is None for choice in body["choices"])


async def test_the_operators_defaults_fill_what_a_request_leaves_out(folder: Path) -> None:
    defaults = {"temperature": 0.5, "top_k": 7, "max_tokens": 3, "presence_penalty": 1.0}
    async with gateway(folder, defaults=defaults) as running:
        await running.chat()
        await running.chat(temperature=1, top_k=0, max_tokens=4, presence_penalty=0)
        first, second = running.engine.requests
        assert (first.params.temperature, first.params.top_k, first.max_tokens) == (0.5, 7, 3)
        assert first.params.presence_penalty == 1
        assert (second.params.temperature, second.params.top_k, second.max_tokens) == (1, 0, 4)
        assert second.params.presence_penalty == 0


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


async def test_more_tokens_than_the_context_has(folder: Path) -> None:
    async with gateway(folder) as running:
        assert (await running.chat(max_tokens=10**6)).status_code == 200
        assert running.engine.requests[0].max_tokens < MAX_SEQ_LEN
    async with gateway(folder, max_tokens_policy="reject") as running:
        error = (await running.chat(max_tokens=10**6)).json()["error"]
        assert (error["param"], error["code"]) == ("max_tokens", "context_length_exceeded")
        assert (await running.chat()).status_code == 200


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


async def test_one_failed_choice_fails_the_answer(folder: Path) -> None:
    def script(request: GenerationRequest) -> list[Step]:
        if request.seed == 2:
            return [EngineError(ErrorKind.QUEUE_FULL, "The queue is full.")]
        return chunks(ByteIds(folder).of("Hello"))

    async with gateway(folder, script) as running:
        answer = await running.chat(n=3, seed=1)
        assert answer.status_code == 429
        assert "choices" not in answer.json()
