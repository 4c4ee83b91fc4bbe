"""Whole completions: prompts of every form, choices, usage, best_of, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.harness import gateway
from tests.app.scripted import MAX_SEQ_LEN, MODEL, ByteIds
from tests.openai.completions_harness import FEATURES, checked, complete


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


async def test_a_stop_string_and_its_count(folder: Path) -> None:
    async with gateway(folder) as running:
        body = checked((await complete(running, "lo", stop="lo", echo=True)).json())
        assert body["choices"][0]["text"] == "loHel"  # the prompt is not searched
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == 5


async def test_token_ids_where_they_are_wanted(folder: Path) -> None:
    async with gateway(folder) as running:
        body = checked((await complete(running, "Hi", return_token_ids=True)).json())
        ids = ByteIds(folder)
        assert body["choices"][0]["token_ids"] == ids.of("Hello")
        assert body["choices"][0]["prompt_token_ids"] == ids.of("Hi")


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


async def test_an_engine_without_log_probs_of_prompts_refuses_echo_with_them(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await complete(running, echo=True, logprobs=1)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "echo")
        assert answer.json()["error"]["code"] == "unsupported_parameter"
