"""Answers of a language model, held to random JSON schemas: nearly all end by themselves, and those validate."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from pathlib import Path

import jsonschema
import pytest
from random_schemas import random_schema
from tokenizers import Tokenizer

from gateway.generation import SamplingParams
from gateway.generation.engine import Engine
from gateway.text.guides.guide import Guide
from gateway.text.prompt.prompt import Prompt
from gateway.triton import TritonBackend
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.engine_requests import generation_request

SCHEMAS, LEAST = 200, 40
ENOUGH_S = 240.0  # after which no more than the least number is asked for: a busy machine makes the model slow
AT_ONCE = 8
END_IDS, END_TEXTS = (2,), ("<|im_end|>",)
PROMPT = "<|im_start|>user\nMake up an example and answer in JSON.<|im_end|>\n<|im_start|>assistant\n"


async def answer(engine: Engine, tokenizer: Tokenizer, schema: dict[str, object], seed: int) -> tuple[str, str | None]:
    request = generation_request(
        uuid.uuid4().hex,
        Prompt(PROMPT, tuple(tokenizer.encode(PROMPT, add_special_tokens=False).ids)),
        200,
        SamplingParams(temperature=0.8, seed=seed),
        end_ids=END_IDS,
        end_texts=END_TEXTS,
        guide=Guide("json_schema", json.dumps(schema)),
    )
    ids: list[int] = []
    finish = None
    async for chunk in engine.generate(request):
        ids += chunk.ids
        finish = chunk.finish_reason or finish
    return tokenizer.decode(ids), finish


@pytest.mark.smollm2
@pytest.mark.long
async def test_answers_validate(triton_smollm2: TritonServer, smollm2_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    rng = random.Random(5)
    schemas = [random_schema(rng) for _ in range(SCHEMAS)]
    turn = asyncio.Semaphore(AT_ONCE)
    async with TritonBackend(triton_smollm2.grpc_url, "ensemble", "tokens") as backend:
        await backend.wait_ready(60)
        engine = backend.engine

        until = time.monotonic() + ENOUGH_S

        async def run(place: int) -> tuple[str, str | None] | None:
            async with turn:
                if place >= LEAST and time.monotonic() > until:
                    return None
                return await answer(engine, tokenizer, schemas[place], place)

        answers = await asyncio.gather(*(run(place) for place in range(SCHEMAS)))
    asked = [(schema, *given) for schema, given in zip(schemas, answers, strict=True) if given is not None]
    ended = [(schema, text) for schema, text, finish in asked if finish == "stop"]
    assert len(ended) >= 0.9 * len(asked)
    checker = jsonschema.FormatChecker(["date", "uuid", "ipv4"])
    for schema, text in ended:
        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text))
