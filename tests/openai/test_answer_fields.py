"""Fields of answers that vLLM and OpenAI have: what ended them, usage so far, padding, tokens by their ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk
from tests.app.harness import Gateway, gateway, says
from tests.app.scripted import MAX_SEQ_LEN, TEMPLATE, ByteIds
from tests.openai.completions_harness import FEATURES, complete, joined, scores
from tests.openai.tools_harness import TOOLS, call_text, tools_folder
from tests.tokens.build import byte_level, write_folder


def _datas(content: bytes) -> list[bytes]:
    """The data of each event but ``[DONE]``."""
    *datas, done = [line for line in content.split(b"\n\n") if line.startswith(b"data: ")]
    assert done == b"data: [DONE]"
    return datas


def _chunks(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(data[6:]) for data in _datas(content)]


async def _both(running: Gateway, **body: Any) -> list[dict[str, Any]]:
    """The choice of a chat and of a completion, each whole, then the last chunk of each streamed."""
    found = []
    for stream in (False, True):
        for answer in (await running.chat(stream=stream, **body), await complete(running, stream=stream, **body)):
            assert answer.status_code == 200, answer.text
            found.append((_chunks(answer.content)[-1] if stream else answer.json())["choices"][0])
    return found


@pytest.mark.parametrize(
    ("body", "reason"),
    [({"stop": ["zz", "lo"]}, "lo"), ({"stop": ["zz"]}, None), ({"max_tokens": 2}, None), ({"stop_ids": "l"}, "l")],
)
async def test_the_stop_that_ended_an_answer_is_named(folder: Path, body: dict[str, Any], reason: str | None) -> None:
    ids = ByteIds(folder)
    if "stop_ids" in body:
        (wanted,) = ids.of(body["stop_ids"])
        body, expected = {"stop_token_ids": [wanted]}, wanted
    else:
        expected = reason  # type: ignore[assignment]
    async with gateway(folder, features=FEATURES) as running:
        for choice in await _both(running, **body):
            assert choice["stop_reason"] == expected
            assert choice["finish_reason"] == ("length" if "max_tokens" in body else "stop")
        answer = await running.chat(stream=True, **body)
        assert [b"stop_reason" in data for data in _datas(answer.content)][:-1].count(True) == 0


async def test_each_choice_names_its_own_stop(folder: Path) -> None:
    def script(request: Any) -> list[EngineChunk]:
        text = "a.b" if request.seed == 1 else "c!d"
        return [*(EngineChunk(ids=[index]) for index in ByteIds(folder).of(text)), EngineChunk(final=True)]

    async with gateway(folder, script) as running:
        choices = (await running.chat(n=2, seed=1, stop=[".", "!"])).json()["choices"]
        assert [choice["stop_reason"] for choice in choices] == [".", "!"]


@pytest.mark.parametrize("served", [False, True])
async def test_padded_chunks_do_not_tell_the_lengths_of_tokens(folder: Path, served: bool) -> None:
    texts = ["a", "some", " longer words", "é\u2028", '"']
    ids = ByteIds(folder)
    script = [*(EngineChunk(ids=ids.of(text)) for text in texts), EngineChunk(final=True)]
    options = {"include_usage": True, "include_obfuscation": True}
    async with gateway(folder, lambda _: script, served=served) as running:
        for answer in (
            await running.chat(stream=True, stream_options=options),
            await complete(running, stream=True, stream_options=options),
        ):
            chunks = _chunks(answer.content)
            assert all(isinstance(chunk["obfuscation"], str) for chunk in chunks)
            with_text = [len(data) for data in _datas(answer.content) if b'"finish_reason":null' in data]
            assert len(with_text) >= len(texts)
            assert max(with_text) - min(with_text) in {0, 64}
            assert {(length + 2) % 64 for length in with_text} == {0}
        assert len({chunk["obfuscation"] for chunk in chunks}) == len(chunks)
        assert joined(chunks)["text"] == "".join(texts)
        for off in ({}, {"include_obfuscation": False}):
            answer = await running.chat(stream=True, stream_options=off)
            assert b"obfuscation" not in answer.content


async def test_log_probs_name_tokens_by_their_ids_where_that_is_wanted(folder: Path) -> None:
    async with gateway(folder, scores(folder, "né"), features=FEATURES) as running:
        first = ByteIds(folder).of("n")[0]
        asked = {"logprobs": True, "top_logprobs": 2, "max_tokens": 3, "seed": 1}
        plain = (await running.chat(**asked)).json()["choices"][0]["logprobs"]["content"]
        named = (await running.chat(**asked, return_tokens_as_token_ids=True)).json()["choices"][0]["logprobs"][
            "content"
        ]
        assert (plain[0]["token"], named[0]["token"]) == ("n", f"token_id:{first}")
        assert [other["token"] for other in named[0]["top_logprobs"]] == ["token_id:0", "token_id:1"]
        assert [entry["bytes"] for entry in named] == [entry["bytes"] for entry in plain]
        answer = await running.chat(**asked, return_tokens_as_token_ids=True, stream=True)
        streamed = [
            entry
            for chunk in _chunks(answer.content)
            for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
        ]
        assert streamed == named
        body = {"logprobs": 1, "max_tokens": 3, "echo": True, "return_tokens_as_token_ids": True}
        lists = (await complete(running, "n", **body)).json()["choices"][0]["logprobs"]
        assert lists["tokens"][:2] == [f"token_id:{first}"] * 2
        assert set(lists["top_logprobs"][1]) == {"token_id:0", f"token_id:{first}"}
        assert lists["text_offset"][:3] == [0, 1, 2]


async def test_every_chunk_of_calls_has_its_token_ids(tmp_path: Path) -> None:
    text = f"Let me see. {call_text('weather', '{}')}"
    shows = tools_folder(tmp_path)
    async with gateway(shows, says(shows, text), features=FEATURES, max_seq_len=4096) as running:
        answer = await running.chat(tools=TOOLS, return_token_ids=True, stream=True, max_tokens=len(text))
        choices = [choice for chunk in _chunks(answer.content) for choice in chunk["choices"]]
        assert any(choice["delta"].get("tool_calls") for choice in choices)
        assert [index for choice in choices for index in choice["token_ids"]] == ByteIds(shows).of(text)


@pytest.mark.parametrize(
    ("prompt", "body", "shown"),
    [
        ("01234", {}, "34"),
        ("01234", {"truncation_side": "right"}, "01"),
        ("<|begin_of_text|>01234", {}, "<|begin_of_text|>34"),
        ("<|begin_of_text|>01234", {"truncation_side": "right"}, "<|begin_of_text|>01"),
    ],
)
async def test_a_cut_prompt_is_echoed_without_a_bos_that_the_client_did_not_send(
    tmp_path: Path, prompt: str, body: dict[str, Any], shown: str
) -> None:
    own = write_folder(
        tmp_path,
        byte_level(),
        tokenizer_config={"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE,
                          "tokenizer_class": "LlamaTokenizerFast"},
    )  # fmt: skip
    async with gateway(own, scores(own, "yo"), features=FEATURES) as running:
        answer = await complete(running, prompt, truncate_prompt_tokens=3, echo=True, logprobs=0, seed=0, **body)
        choice = answer.json()["choices"][0]
        assert choice["text"] == shown + "yo"
        lists = choice["logprobs"]
        end = len(shown)
        assert lists["text_offset"][:4] == [0, end - 2, end - 1, end]
        assert lists["tokens"][:3] == ["<|begin_of_text|>", *shown[-2:]]


async def test_a_prompt_is_cut_to_what_fits_beside_the_answer(folder: Path) -> None:
    async with gateway(folder, says(folder, "x")) as running:
        for fields, length in (({"max_tokens": 16}, MAX_SEQ_LEN - 16), ({}, MAX_SEQ_LEN - 1)):
            answer = await complete(running, "n" * 400, truncate_prompt_tokens=-1, **fields)
            assert answer.status_code == 200, answer.text
            assert len(running.engine.requests[-1].prompt.ids) == length
        for fields, param in (
            ({"max_tokens": 16, "truncate_prompt_tokens": MAX_SEQ_LEN - 15}, "truncate_prompt_tokens"),
            ({"max_tokens": MAX_SEQ_LEN, "truncate_prompt_tokens": -1}, "max_tokens"),
        ):
            error = (await complete(running, "n", **fields)).json()["error"]
            assert error["param"] == param
        asked = {"max_completion_tokens": MAX_SEQ_LEN, "truncate_prompt_tokens": -1}
        assert (await running.chat(**asked)).json()["error"]["param"] == "max_completion_tokens"
