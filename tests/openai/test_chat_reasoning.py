"""Reasoning apart from the answer: fields, streams, token counts, and what goes back into the template."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, GenerationRequest
from tests.app.harness import gateway, says
from tests.app.scripted import Step, write_tokenizer
from tests.openai.tools_harness import (
    SHOWS_TOOLS,
    UNGUIDED,
    streamed,
    whole,
)

THINKS = (
    SHOWS_TOOLS
    + "{# <think> #}{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)


@pytest.fixture(scope="session")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("thinks"), THINKS)


def reasoning_tokens(running_answer: Any) -> int:
    details = running_answer.usage.completion_tokens_details
    assert details is not None
    return int(details.reasoning_tokens)


REASONED = "<think>\nHm, é?\n</think>\n\nSunny."


@pytest.mark.parametrize(
    ("setting", "fields"),
    [
        ("reasoning_content", {"reasoning_content"}),
        ("reasoning", {"reasoning"}),
        ("both", {"reasoning_content", "reasoning"}),
    ],
)
async def test_the_fields_are_the_operator_s_choice(thinks: Path, setting: str, fields: set[str]) -> None:
    script = says(thinks, REASONED)
    async with gateway(thinks, script, features=UNGUIDED, max_seq_len=4096, reasoning_output=setting) as running:
        extra = (await whole(running)).choices[0].message.model_extra
        assert extra == dict.fromkeys(fields, "Hm, é?")
        deltas = [chunk.choices[0].delta.model_extra for chunk in await streamed(running)]
        assert {name for delta in deltas for name in delta or {}} == fields


async def test_stop_strings_do_not_end_the_reasoning(thinks: Path) -> None:
    text = "<think>\nOne, two.\n</think>\n\nOne, two, three."
    async with gateway(thinks, says(thinks, text), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running, stop="two")
        assert answer.choices[0].message.content == "One, "
        assert answer.choices[0].message.model_extra == {"reasoning_content": "One, two."}
        assert answer.usage is not None
        assert answer.usage.completion_tokens == text.rindex("two") + 3
        assert reasoning_tokens(answer) == len("One, two.")


async def test_an_engine_that_tells_no_tokens(thinks: Path) -> None:
    features = dataclasses.replace(UNGUIDED, token_ids=False, prompt_ids=False, path="ensemble")

    def script(request: GenerationRequest) -> list[Step]:
        parts = [REASONED[start : start + 5] for start in range(0, len(REASONED), 5)]
        return [*(EngineChunk(text=part) for part in parts), EngineChunk(text="<|im_end|>", final=True)]

    async with gateway(thinks, script, features=features, max_seq_len=4096) as running:
        answer = await whole(running)
        assert answer.choices[0].message.content == "Sunny."
        assert answer.choices[0].message.model_extra == {"reasoning_content": "Hm, é?"}
        assert answer.usage is not None
        details = answer.usage.completion_tokens_details
        assert details is not None
        # How many tokens are of the reasoning is not known, and how many there are is estimated.
        assert details.model_dump(exclude_none=True) == {"estimated": True}
