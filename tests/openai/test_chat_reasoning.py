"""Reasoning apart from the answer: fields, streams, token counts, and what goes back into the template."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, GenerationRequest
from tests.app.harness import USER, Gateway, gateway, says
from tests.app.scripted import ByteIds, Step, write_tokenizer
from tests.openai.tools_harness import (
    GUIDED,
    SHOWS_TOOLS,
    TOOLS,
    UNGUIDED,
    accumulated,
    call_text,
    streamed,
    whole,
)

THINKS = (
    SHOWS_TOOLS
    + "{# <think> #}{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
OPENED = SHOWS_TOOLS + "<think>\n"


@pytest.fixture(scope="session")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("thinks"), THINKS)


def reasoning_tokens(running_answer: Any) -> int:
    details = running_answer.usage.completion_tokens_details
    assert details is not None
    return int(details.reasoning_tokens)


REASONED = "<think>\nHm, é?\n</think>\n\nSunny."


async def test_reasoning_is_apart(thinks: Path) -> None:
    async with gateway(thinks, says(thinks, REASONED), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running)
        message = answer.choices[0].message
        assert message.content == "Sunny."
        assert (message.model_extra or {}) == {"reasoning_content": "Hm, é?"}
        assert reasoning_tokens(answer) == len("Hm, é?".encode())
        assert answer.usage is not None
        assert answer.usage.completion_tokens == len(REASONED.encode())
        found = accumulated(await streamed(running))
        assert (found["reasoning"], found["content"]) == ("Hm, é?", "Sunny.")


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


async def test_no_reasoning_is_null(thinks: Path) -> None:
    async with gateway(thinks, says(thinks, "Sunny."), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running, chat_template_kwargs={"enable_thinking": False})
        assert running.engine.requests[0].prompt.text.endswith("</think>\n\n")
        assert answer.choices[0].message.model_extra == {"reasoning_content": None}
        assert answer.choices[0].message.content == "Sunny."
        assert reasoning_tokens(answer) == 0


async def test_a_prompt_that_has_opened_the_tag(tmp_path: Path) -> None:
    own = write_tokenizer(tmp_path, OPENED)
    async with gateway(own, says(own, "Hm.</think>Sunny."), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running)
        assert answer.choices[0].message.content == "Sunny."
        assert answer.choices[0].message.model_extra == {"reasoning_content": "Hm."}
        assert reasoning_tokens(answer) == 3


async def test_cut_inside_of_the_reasoning(thinks: Path) -> None:
    async with gateway(thinks, says(thinks, REASONED), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running, max_tokens=10)
        choice = answer.choices[0]
        assert (choice.finish_reason, choice.message.content) == ("length", "")
        assert choice.message.model_extra == {"reasoning_content": "Hm"}
        assert reasoning_tokens(answer) == 2


async def test_reasoning_before_a_call(thinks: Path) -> None:
    text = "<think>\nHm.\n</think>\n\n" + call_text("weather", '{"city": "Rome"}')
    async with gateway(thinks, says(thinks, text), features=UNGUIDED, max_seq_len=4096) as running:
        message = (await whole(running, tools=TOOLS)).choices[0].message
        assert message.content is None
        assert message.model_extra == {"reasoning_content": "Hm."}
        assert [call.function.name for call in message.tool_calls or []] == ["weather"]
        found = accumulated(await streamed(running, tools=TOOLS))
        assert (found["content"], found["reasoning"], len(found["calls"])) == (None, "Hm.", 1)


async def test_stop_strings_do_not_end_the_reasoning(thinks: Path) -> None:
    text = "<think>\nOne, two.\n</think>\n\nOne, two, three."
    async with gateway(thinks, says(thinks, text), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running, stop="two")
        assert answer.choices[0].message.content == "One, "
        assert answer.choices[0].message.model_extra == {"reasoning_content": "One, two."}
        assert answer.usage is not None
        assert answer.usage.completion_tokens == text.rindex("two") + 3
        assert reasoning_tokens(answer) == len("One, two.")


async def test_counts_do_not_depend_on_how_tokens_come(thinks: Path) -> None:
    ids = ByteIds(thinks).of(REASONED)
    counts = set()
    for size in (1, 3, 7, 100):

        def script(request: GenerationRequest, size: int = size) -> list[Step]:
            parts = [ids[start : start + size] for start in range(0, len(ids), size)]
            return [*(EngineChunk(ids=part) for part in parts), EngineChunk(final=True)]

        async with gateway(thinks, script, features=UNGUIDED, max_seq_len=4096) as running:
            answer = await whole(running)
            counts.add((reasoning_tokens(answer), answer.choices[0].message.content))
    assert counts == {(len("Hm, é?".encode()), "Sunny.")}


async def usage_of_stream(running: Gateway, **body: Any) -> list[dict[str, Any]]:
    answer = await running.chat(stream=True, **body)
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    return [usage for event in events if (usage := json.loads(event).get("usage"))]


async def test_usage_of_a_stream(thinks: Path) -> None:
    async with gateway(thinks, says(thinks, REASONED), features=UNGUIDED, max_seq_len=4096) as running:
        (last,) = await usage_of_stream(running, stream_options={"include_usage": True})
        assert last["completion_tokens_details"]["reasoning_tokens"] == len("Hm, é?".encode())
        options = {"include_usage": True, "continuous_usage_stats": True}
        counts = [
            usage["completion_tokens_details"]["reasoning_tokens"]
            for usage in await usage_of_stream(running, stream_options=options)
        ]
        assert counts == sorted(counts)
        assert counts[-1] == len("Hm, é?".encode())


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


async def test_earlier_reasoning_and_the_effort_reach_the_template(tmp_path: Path) -> None:
    own = write_tokenizer(
        tmp_path,
        "{% for m in messages %}[{{ m.content }}|{{ m.thinking }}]{% endfor %}{{ reasoning_effort }}",
    )
    history = [*USER, {"role": "assistant", "content": "x", "reasoning": "So."}]
    async with gateway(own, says(own, "x"), features=UNGUIDED, max_seq_len=4096) as running:
        await whole(running, messages=history, reasoning_effort="high")
        assert running.engine.requests[0].prompt.text == f"[{USER[0]['content']}|][x|So.]high"


async def test_a_guide_without_structural_tags_leaves_no_reasoning(thinks: Path) -> None:
    async with gateway(thinks, says(thinks, '{"a": 1}'), features=GUIDED, max_seq_len=4096) as running:
        answer = await whole(running, response_format={"type": "json_object"})
        assert answer.choices[0].message.content == '{"a": 1}'
        assert reasoning_tokens(answer) == 0
