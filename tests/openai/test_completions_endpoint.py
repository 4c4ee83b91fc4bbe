"""Completions: prompts of every form, streams, log-probs and echoed prompts, and what is refused."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.api.openai.completions.choice import LogprobRow, LogprobWriter, prompt_rows
from gateway.generation import EngineChunk, GenerationRequest
from gateway.text.tokens import Tokenizer
from tests.app.harness import gateway
from tests.app.scripted import MAX_SEQ_LEN, MODEL, ByteIds
from tests.openai.completions_harness import FEATURES, checked, complete, events, joined, prompt_logprob, scores
from tests.tokens.build import byte_level, sentence_piece


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
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [5, 99999]}, "prompt[1]"),
        ({"prompt": [[5], [6, 99999]]}, "prompt[1][1]"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 21}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"prompt": "x" * MAX_SEQ_LEN}, "prompt"),
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


async def test_the_work_grows_with_the_number_of_choices_and_no_faster(folder: Path) -> None:
    def script(request: GenerationRequest) -> list[Any]:
        return [*(EngineChunk(ids=[index]) for index in ByteIds(folder).of("abcdefgh")), EngineChunk(final=True)]

    async with gateway(folder, script, served=True) as running:

        async def seconds(prompts: int) -> float:
            start = time.process_time()
            answer = await complete(running, ["x"] * prompts, stream=True, stream_options={"include_usage": True})
            assert events(answer.content)[-1]["usage"]["completion_tokens"] == 8 * prompts
            return time.process_time() - start

        few = await seconds(40)
        assert await seconds(8 * 40) < 24 * few


@pytest.mark.parametrize("stream", [False, True])
async def test_one_token_that_is_an_end_has_its_row(folder: Path, stream: bool) -> None:
    end = 257  # <|im_end|>, which ends answers of this model
    async with gateway(folder, scores(folder, "", end=end), features=FEATURES) as running:
        answer = await complete(running, "ab", echo=True, logprobs=1, max_tokens=1, seed=0, stream=stream)
        choice = joined(events(answer.content)) if stream else checked(answer.json())["choices"][0]
        assert choice["text"] == "ab"
        assert choice["finish_reason"] == "stop"
        assert choice["logprobs"]["tokens"] == ["a", "b", "<|im_end|>"]
        assert choice["logprobs"]["text_offset"] == [0, 1, 2]
        longer = await complete(running, "ab", logprobs=1, max_tokens=2)
        assert longer.json()["choices"][0]["logprobs"]["tokens"] == []


@pytest.mark.parametrize(
    "body", [{"prompt": "aé"}, {"prompt": [[39, 72], [87]], "n": 2}, {"prompt": "b", "max_tokens": 0}]
)
async def test_a_stream_has_the_same_lists(folder: Path, body: dict[str, Any]) -> None:
    async with gateway(folder, scores(folder, "né😀!"), features=FEATURES) as running:
        for more in ({}, {"logprobs": 2}, {"logprobs": 0, "echo": True}, {"echo": True}):
            asked = {"max_tokens": 7, "seed": 3, "echo": body.get("max_tokens") == 0, **body, **more}
            if asked["max_tokens"] == 0:
                asked["echo"] = True
            whole = checked((await complete(running, **asked)).json())
            chunks = events((await complete(running, **asked, stream=True)).content)
            for choice in whole["choices"]:
                assert joined(chunks, choice["index"]) == choice


async def test_prompt_logprobs_by_themselves(folder: Path) -> None:
    async with gateway(folder, scores(folder, "yo"), features=FEATURES) as running:
        body = (await complete(running, ["ab", "c"], prompt_logprobs=1, logprobs=0, echo=True, seed=0)).json()
        ids = ByteIds(folder).of("ab")
        first, second = body["choices"]
        assert first["prompt_logprobs"][0] is None
        assert first["prompt_logprobs"][1] == {
            "0": {"logprob": -0.01, "rank": 1, "decoded_token": "!"},
            str(ids[1]): {"logprob": prompt_logprob(1), "rank": None, "decoded_token": "b"},
        }
        assert second["prompt_logprobs"] == [None]
        assert first["logprobs"]["top_logprobs"][1] == {"b": prompt_logprob(1)}  # 0 alternatives were asked for there


async def test_log_probs_that_do_not_fit_the_prompt_are_no_answer(folder: Path) -> None:
    bad = [None, [0.5], [math.nan, -1.0]]
    for given in bad:
        chunk = EngineChunk(ids=[1], logprobs=[-1.0], prompt_logprobs=given, final=True)
        async with gateway(folder, lambda _, chunk=chunk: [replace(chunk)], features=FEATURES) as running:
            for stream in (False, True):
                answer = await complete(running, "abc", echo=True, logprobs=0, stream=stream)
                assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")


def prompt_lists(tokenizer: Tokenizer, text: str, *, bos: bool) -> dict[str, list[Any]]:
    """The lists of an echoed prompt, with one generated row behind it."""
    ids = tokenizer.encode(text)
    if bos:
        assert tokenizer.bos_id is not None
        ids = [tokenizer.bos_id, *ids]
    rows = prompt_rows(tokenizer, ids, text, [-1.0] * (len(ids) - 1), (), silent_bos=bos)
    return LogprobWriter(len(text)).write([*rows, LogprobRow("x", b"x", -2.0, {"x": -2.0})])


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        *((byte_level(), text) for text in ("the capital of Paris", " hello", "你é he", "<|im_end|> a")),
        *((sentence_piece("llama2"), text) for text in ("the capital of Paris", " hello", "你é he")),
        *((sentence_piece("mistral"), text) for text in ("the capital of Paris", "hello", "你 he")),
        *((sentence_piece("gemma"), text) for text in ("the capital of Paris", " hello", "<|im_end|> a")),
    ],
)
def test_offsets_cut_the_prompt_s_own_text(tokenizer: Tokenizer, bos: bool, text: str) -> None:
    lists = prompt_lists(tokenizer, text, bos=bos)
    tokens, cuts = lists["tokens"][bos:], lists["text_offset"][bos:]
    for token, start, end in zip(tokens, cuts, cuts[1:], strict=False):
        if not token.startswith("bytes:"):
            assert text[start:end] == (token if start or text.startswith(token) else token.lstrip(" "))
    assert (lists["text_offset"][0], cuts[0], cuts[-1]) == (0, 0, len(text))
    assert lists["token_logprobs"] == [None, *[-1.0] * (len(lists["tokens"]) - 2), -2.0]


@pytest.mark.parametrize(("style", "text"), [("llama2", "<|im_end|> a"), ("mistral", " hello")])
def test_offsets_stay_in_a_text_that_its_tokens_do_not_give_back(style: str, text: str) -> None:
    cuts = prompt_lists(sentence_piece(style), text, bos=False)["text_offset"]
    assert cuts == sorted(cuts)
    assert cuts[-1] == len(text)
