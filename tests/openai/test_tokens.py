"""Tokenizing, detokenizing, the tokenizer's description, and rendering: none of them asks the engine to generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.harness import USER, gateway
from tests.app.scripted import MODEL, TEMPLATE, ByteIds
from tests.tokens.build import byte_level, write_folder

CONTINUED = "continue_final_message"
CHAT = "<|im_start|>user\nHi<|im_end|>\n"


async def post(running: Any, path: str, **body: Any) -> Any:
    answer = await running.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_conversation_to_the_tokens_of_a_chat(folder: Path) -> None:
    async with gateway(folder) as running:
        body = await post(running, "/tokenize", messages=USER)
        assert body["tokens"] == ByteIds(folder).of(CHAT + "<|im_start|>assistant\n")
        assert body["token_strs"] is None
        await running.chat()
        assert list(running.engine.requests[0].prompt.ids) == body["tokens"]
        bare = await post(running, "/tokenize", messages=USER, add_generation_prompt=False)
        assert bare["tokens"] == ByteIds(folder).of(CHAT)
        said = [*USER, {"role": "assistant", "content": "So"}]
        open_end = await post(running, "/tokenize", messages=said, continue_final_message=True)
        assert open_end["tokens"] == ByteIds(folder).of(CHAT + "<|im_start|>assistant\nSo")
        literal = await post(running, "/tokenize", messages=[{"role": "user", "content": "<|im_end|>"}])
        assert literal["tokens"].count(257) == 1  # what a user types stays text


async def test_bos_once_or_not_at_all(tmp_path: Path) -> None:
    tokenizer = byte_level()
    own = write_folder(
        tmp_path,
        tokenizer,
        tokenizer_config={"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE,
                          "tokenizer_class": "LlamaTokenizerFast"},
    )  # fmt: skip
    async with gateway(own) as running:
        plain = tokenizer.encode("the capital")
        assert (await post(running, "/tokenize", prompt="the capital"))["tokens"] == [tokenizer.bos_id, *plain]
        assert (await post(running, "/tokenize", prompt="the capital", add_special_tokens=False))["tokens"] == plain
        given = await post(running, "/tokenize", prompt="<|begin_of_text|>the capital")
        assert given["tokens"] == [tokenizer.bos_id, *plain]
        chat = (await post(running, "/tokenize", messages=USER))["tokens"]
        assert chat[0] != tokenizer.bos_id
        assert (await post(running, "/tokenize", messages=USER, add_special_tokens=True))["tokens"] == [
            tokenizer.bos_id,
            *chat,
        ]
        info = (await running.client.get("/tokenizer_info")).json()
        assert info["tokenizer_class"] == "LlamaTokenizerFast"
        assert (info["bos_token"], info["bos_token_id"], info["add_bos_token"]) == (
            "<|begin_of_text|>",
            tokenizer.bos_id,
            True,
        )


async def test_they_work_while_the_engine_is_away(folder: Path) -> None:
    async with gateway(folder, engine_up=False) as running:
        assert (await post(running, "/tokenize", messages=USER))["count"] > 0
        assert (await running.client.get("/tokenizer_info")).status_code == 200
        rendered = await running.client.post("/v1/chat/completions/render", json={"model": MODEL, "messages": USER})
        assert rendered.status_code == 503


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "x", "content": "a"}]}, "messages[0].role"),
        ("/tokenize", {"messages": USER, CONTINUED: True, "add_generation_prompt": True}, CONTINUED),
        ("/tokenize", {"messages": [*USER, {"role": "system", "content": "x"}], CONTINUED: True}, CONTINUED),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [1.5]}, "tokens[0]"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/v1/chat/completions/render", {"model": MODEL, "messages": USER, "n": 0}, "n"),
    ],
)
async def test_what_is_refused_names_its_field(folder: Path, path: str, body: dict[str, Any], param: str) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_an_engine_that_shows_nothing_is_told_of(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/v1/chat/completions/render", json={"model": MODEL, "messages": USER})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
        assert not running.engine.requests
