"""Whole completions: prompts of every form, choices, usage, best_of, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineError, ErrorKind
from tests.app.harness import gateway
from tests.app.scripted import MAX_SEQ_LEN, MODEL, ByteIds
from tests.openai.completions_harness import FEATURES, checked, complete, scores


async def test_a_text_is_continued(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await complete(running, "Hi")
        assert answer.headers["cache-control"] == "no-cache"
        body = checked(answer.json())
        (choice,) = body["choices"]
        plain = {"logprobs": None, "finish_reason": "stop", "stop_reason": None}
        assert choice == {"index": 0, "text": "Hello", **plain}
        assert (body["object"], body["model"]) == ("text_completion", MODEL)
        assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (2, 5)
        (request,) = running.engine.requests
        assert (request.prompt.text, list(request.prompt.ids)) == ("Hi", ByteIds(folder).of("Hi"))
        assert request.max_tokens == MAX_SEQ_LEN - 2


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("Hi", ["Hi"]),
        (["Hi", "é", "x"], ["Hi", "é", "x"]),
        ([39, 72], ["Hi"]),
        ([[39, 72], [87]], ["Hi", "x"]),
        ([256, 39], ["<|im_start|>H"]),
        ("<|im_end|>", ["<|im_end|>"]),
    ],
)
async def test_every_form_of_a_prompt(folder: Path, prompt: Any, texts: list[str]) -> None:
    async with gateway(folder) as running:
        body = checked((await complete(running, prompt, echo=True, max_tokens=2)).json())
        assert [choice["text"] for choice in body["choices"]] == [f"{text}He" for text in texts]
        assert [choice["index"] for choice in body["choices"]] == list(range(len(texts)))
        assert [request.prompt.text for request in running.engine.requests] == texts
        lengths = [len(ids) for text in texts for ids in [ByteIds(folder).of(text)]]
        assert body["usage"]["prompt_tokens"] == sum(lengths)
        assert body["usage"]["completion_tokens"] == 2 * len(texts)


async def test_n_choices_of_each_prompt_share_it(folder: Path) -> None:
    async with gateway(folder) as running:
        body = checked((await complete(running, ["a", "bc"], n=2, seed=7, max_tokens=1)).json())
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
        assert [request.prompt.text for request in running.engine.requests] == ["a", "a", "bc", "bc"]
        assert [request.seed for request in running.engine.requests] == [7, 8, 7, 8]
        assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 4)


async def test_best_of_returns_the_most_probable_and_counts_all(folder: Path) -> None:
    async with gateway(folder, scores(folder, "Hello"), features=FEATURES) as running:
        body = checked((await complete(running, ["a", "b"], n=2, best_of=4, seed=1)).json())
        # The script's log-prob falls with seed % 4: seeds 1, 2, 3, 4 rank as 4, 1, 2, 3.
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
        assert all(choice["logprobs"] is None for choice in body["choices"])
        assert len(running.engine.requests) == 8
        assert all(request.params.logprobs for request in running.engine.requests)
        assert body["usage"]["completion_tokens"] == 8 * 5
        ranked = checked((await complete(running, "a", n=2, best_of=4, seed=1, logprobs=0)).json())
        assert [choice["logprobs"]["token_logprobs"][0] for choice in ranked["choices"]] == [-1 / 8, -1 / 8 - 1]


async def test_a_stop_string_and_its_count(folder: Path) -> None:
    async with gateway(folder) as running:
        body = checked((await complete(running, "lo", stop="lo", echo=True)).json())
        assert body["choices"][0]["text"] == "loHel"  # the prompt is not searched
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == 5


async def test_max_tokens_0_echoes_and_generates_nothing(folder: Path) -> None:
    async with gateway(folder) as running:
        body = checked((await complete(running, "Hi", max_tokens=0, echo=True)).json())
        plain = {"logprobs": None, "finish_reason": "length", "stop_reason": None}
        assert body["choices"][0] == {"index": 0, "text": "Hi", **plain}
        assert body["usage"]["completion_tokens"] == 0


async def test_token_ids_where_they_are_wanted(folder: Path) -> None:
    async with gateway(folder) as running:
        body = checked((await complete(running, "Hi", return_token_ids=True)).json())
        ids = ByteIds(folder)
        assert body["choices"][0]["token_ids"] == ids.of("Hello")
        assert body["choices"][0]["prompt_token_ids"] == ids.of("Hi")


async def test_options_reach_the_engine(folder: Path) -> None:
    async with gateway(folder, scores(folder, "Hello"), features=FEATURES) as running:
        await complete(
            running, temperature=0.5, top_p=0.9, top_k=3, presence_penalty=1, repetition_penalty=1.5, max_tokens=9,
            min_tokens=2, stop_token_ids=[5], logit_bias={"65": -100, "66": 3}, ignore_eos=True,
        )  # fmt: skip
        (request,) = running.engine.requests
        sampling = request.params
        assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 3)
        assert (sampling.presence_penalty, sampling.repetition_penalty) == (1, 1.5)
        assert (request.max_tokens, request.params.min_tokens, request.params.stop_token_ids, request.end_ids) == (
            9,
            2,
            (5,),
            (),
        )
        assert request.params.logit_bias[66] == 3
        assert request.params.logit_bias[65] <= -100


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [5, 99999]}, "prompt[1]"),
        ({"prompt": [[5], [6, 99999]]}, "prompt[1][1]"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"prompt": ["a"] * 1025, "n": 2}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 21}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"logit_bias": {"a": 1}}, "logit_bias.a"),
        ({"prompt": "x" * MAX_SEQ_LEN}, "prompt"),
        ({"use_beam_search": True}, "best_of"),
    ],
)
async def test_what_is_refused_names_its_parameter(folder: Path, body: dict[str, Any], param: str) -> None:
    async with gateway(folder, features=FEATURES) as running:
        answer = await running.client.post("/v1/completions", json={"model": MODEL, "prompt": "Hi", **body})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["param"].partition("[key]")[0].removesuffix(".") == param
        assert not running.engine.requests


async def test_neutral_values_are_accepted_and_unknown_ones_named(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await complete(running, suffix=None, best_of=1, logit_bias={}, user="u", echo=False, logprobs=None)
        assert answer.status_code == 200
        assert "x-ignored-parameters" not in answer.headers
        answer = await complete(running, suffix="", colour="red")
        assert answer.status_code == 200
        assert answer.headers["x-ignored-parameters"] == "colour"


async def test_an_engine_without_log_probs_of_prompts_refuses_echo_with_them(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await complete(running, echo=True, logprobs=1)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "echo")
        assert answer.json()["error"]["code"] == "unsupported_parameter"


async def test_failures_have_their_status_and_the_parameter_of_this_endpoint(folder: Path) -> None:
    for kind, status, param in (
        (ErrorKind.QUEUE_FULL, 429, None),
        (ErrorKind.CONTEXT_LENGTH, 400, "prompt"),
        (ErrorKind.INTERNAL, 500, None),
    ):
        failure = EngineError(kind, "Not now.", "secret")
        async with gateway(folder, lambda _, failure=failure: [failure]) as running:
            for stream in (False, True):
                answer = await complete(running, ["a", "b"], stream=stream)
                assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
                assert "secret" not in answer.text


async def test_an_unknown_model(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/v1/completions", json={"model": "x", "prompt": "a"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
