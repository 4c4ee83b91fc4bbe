"""Guides through both dialects on the real Triton."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tokenizers import Tokenizer

from gateway.generation import SamplingParams
from gateway.generation.engine import EngineChunk, EngineError, ErrorKind
from gateway.text.guides.guide import Guide, GuideKind
from gateway.text.prompt.prompt import Prompt
from gateway.triton import TritonBackend
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.engine_requests import generation_request

pytestmark = pytest.mark.parametrize("path", ["tokens", "ensemble"])

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "how": {"enum": ["schnell", "größer"]}},
    "required": ["ok", "how"],
    "additionalProperties": False,
}
TAG = {
    "type": "structural_tag",
    "format": {"type": "tag", "begin": "<", "content": {"type": "json_schema"}, "end": ">"},
}
TAG["format"]["content"]["json_schema"] = SCHEMA  # type: ignore[index]
OBJECT = r'\{"ok": ?(true|false), ?"how": ?"(schnell|größer)"\}'

Ask = Callable[[GuideKind, str], Any]


@pytest.fixture
async def backend(triton: TritonServer, path: Any) -> AsyncIterator[TritonBackend]:
    async with TritonBackend(triton.grpc_url, "ensemble", path) as running:
        await running.wait_ready(30)
        yield running


@pytest.fixture
def ask(backend: TritonBackend, tokenizer: Tokenizer) -> Ask:
    """The text of an answer to a guide, and its end."""

    async def run(kind: GuideKind, text: str) -> tuple[str, str | None]:
        request = generation_request(
            uuid.uuid4().hex,
            Prompt("Tell me", tuple(tokenizer.encode("Tell me").ids)),
            200,
            SamplingParams(seed=3),
            end_ids=(2, 0),
            end_texts=("<|im_end|>", "<|endoftext|>"),
            guide=Guide(kind, text),
        )
        chunks: list[EngineChunk] = [chunk async for chunk in backend.engine.generate(request)]
        ids = [token for chunk in chunks for token in chunk.ids if token not in (2, 0)]
        return tokenizer.decode(ids), chunks[-1].finish_reason

    return run


@pytest.mark.parametrize(
    ("kind", "text", "pattern"),
    [
        ("json_schema", json.dumps(SCHEMA), OBJECT),
        ("regex", r"[0-9]{4}-(é|🙂)", r"[0-9]{4}-(é|🙂)"),
        ("ebnf_grammar", 'root ::= "<" [a-c]{3} ">"', "<[a-c]{3}>"),
        ("structural_tag", json.dumps(TAG), f"<{OBJECT}>"),
    ],
)
async def test_answers_keep_to_their_guides(ask: Ask, kind: GuideKind, text: str, pattern: str) -> None:
    said, finish = await ask(kind, text)
    assert re.fullmatch(pattern, said)
    assert finish == "stop"


async def test_json_begins_an_object(ask: Ask) -> None:
    said, _ = await ask("json", "")
    assert said.startswith("{")


async def test_a_mistake_in_a_guide_is_the_request_s(ask: Ask) -> None:
    with pytest.raises(EngineError, match="does not support this guide") as error:
        await ask("json_schema", '{"type": "strin"}')
    assert error.value.kind is ErrorKind.INVALID_REQUEST
    assert "strin" in error.value.detail
    assert (await ask("regex", "ab"))[0] == "ab"
