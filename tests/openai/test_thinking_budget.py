"""Reasoning apart from the answer: fields, streams and counts of each API, its budget, and answers without it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk, GenerationRequest
from tests.anthropic import messages_harness
from tests.app.harness import gateway, rejected, says
from tests.app.scripted import ByteIds, Script, Step, write_tokenizer
from tests.openai import responses_harness
from tests.openai.tools_harness import (
    ALL_KINDS,
    CITY,
    GUIDED,
    SHOWS_TOOLS,
    TOOLS,
    UNGUIDED,
    call_text,
    streamed,
    whole,
)

END = "</think>\n\n"
NATIVE = dataclasses.replace(GUIDED, guide_types=ALL_KINDS)
ROME = {"city": "Rome"}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its prompts have opened the thought, unless the switch says otherwise."""
    switch = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n"
    return write_tokenizer(tmp_path_factory.mktemp("opened"), SHOWS_TOOLS + switch + "{% endif %}")


def thinks_on(folder: Path, answer: str, thought: str = "x" * 200) -> Script:
    """A script that thinks until its thought is ended for it, and then answers."""
    ids = ByteIds(folder)
    end = tuple(ids.of(END))

    def script(request: GenerationRequest) -> list[Step]:
        ended = request.prompt.ids[-len(end) :] == end
        logprobs = [-0.5] if request.params.logprobs else None
        said = ids.of(answer if ended else thought)[: request.max_tokens]
        return [*(EngineChunk(ids=[index], logprobs=logprobs) for index in said), EngineChunk(final=True)]

    return script


async def test_a_budget_that_is_enough_changes_nothing(opened: Path) -> None:
    script = thinks_on(opened, "", thought=f"Hm.{END}Sunny.")
    async with gateway(opened, script, features=UNGUIDED, max_seq_len=4096) as running:
        budgets: tuple[dict[str, int], ...] = ({}, {"thinking_token_budget": 50}, {"thinking_token_budget": -1})
        free, *others = [(await running.chat(max_tokens=500, **budget)).json() for budget in budgets]
        assert [(each["choices"], each["usage"]) for each in others] == [(free["choices"], free["usage"])] * 2
        assert len(running.engine.requests) == 3


async def test_a_prewarm_counts_no_reasoning(opened: Path) -> None:
    async with gateway(opened, thinks_on(opened, "Sunny."), features=UNGUIDED, max_seq_len=4096) as running:
        for ask in (responses_harness.whole, responses_harness.streamed):
            warmed = await ask(running, prompt_cache_options={"prewarm": True}, thinking_token_budget=0)
            assert warmed.usage is not None
            assert (warmed.usage.output_tokens, warmed.usage.output_tokens_details.reasoning_tokens) == (0, 0)


async def test_responses_and_messages(opened: Path) -> None:
    async with gateway(opened, thinks_on(opened, "Sunny."), features=UNGUIDED, max_seq_len=4096) as running:
        for ask in (responses_harness.whole, responses_harness.streamed):
            response = await ask(running, thinking_token_budget=10)
            reasoning: dict[str, Any] = response.output[0].to_dict()
            assert (response.output_text, reasoning["content"][0]["text"]) == ("Sunny.", "x" * 10)
            assert response.usage is not None
            assert response.usage.output_tokens == 10 + len(END) + len("Sunny.")
            assert response.usage.output_tokens_details.reasoning_tokens == 10
        for read in (messages_harness.whole, messages_harness.streamed):
            message = await read(running, thinking={"type": "enabled", "budget_tokens": 10})
            assert (message.text, message.thinking, message.stop_reason) == ("Sunny.", "x" * 10, "end_turn")
            assert message.usage.output_tokens == 10 + len(END) + len("Sunny.")
        free = await messages_harness.whole(running, thinking={"type": "adaptive"}, max_tokens=100)
        assert (free.thinking, free.stop_reason) == ("x" * 100, "max_tokens")


async def test_limits_stops_log_probs_and_several_choices(opened: Path) -> None:
    async with gateway(opened, thinks_on(opened, "Sunny. Warm."), features=UNGUIDED, max_seq_len=4096) as running:
        budget = {"thinking_token_budget": 10}
        cut = (await whole(running, **budget, max_tokens=10 + len(END) + 3)).choices[0]
        assert (cut.message.content, cut.finish_reason) == ("Sun", "length")
        no_room = (await whole(running, **budget, max_tokens=10 + len(END))).choices[0]
        assert (no_room.message.content, no_room.finish_reason) == ("", "length")
        stopped = (await whole(running, **budget, stop=" W")).choices[0]
        assert (stopped.message.content, stopped.finish_reason) == ("Sunny.", "stop")
        several = await whole(running, **budget, n=3, seed=5)
        assert [choice.message.content for choice in several.choices] == ["Sunny. Warm."] * 3
        assert len({request.seed for request in running.engine.requests[-6:]}) == 6
        assert several.usage is not None
        assert several.usage.completion_tokens == 3 * (10 + len(END) + len("Sunny. Warm."))
        logprobs = (await whole(running, **budget, logprobs=True)).choices[0].logprobs
        assert logprobs is not None
        assert "".join(entry.token for entry in logprobs.content or []) == "x" * 10 + "Sunny. Warm."
        ids = (await running.chat(**budget, return_token_ids=True)).json()["choices"][0]["token_ids"]
        assert ids == ByteIds(opened).of("x" * 10 + END + "Sunny. Warm.")


async def test_no_thought_at_all(opened: Path) -> None:
    async with gateway(opened, thinks_on(opened, "Sunny."), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running, thinking_token_budget=0)
        assert answer.choices[0].message.model_extra == {"reasoning_content": None}
        assert answer.choices[0].message.content == "Sunny."
        assert len(running.engine.requests) == 1
        off = await whole(running, thinking_token_budget=5, chat_template_kwargs={"enable_thinking": False})
        assert off.choices[0].message.content == "Sunny."
        assert len(running.engine.requests) == 2


SCHEMA = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY, "strict": True}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"response_format": SCHEMA}, json.dumps(ROME)),
        ({"tools": TOOLS, "tool_choice": "required"}, call_text("weather", json.dumps(ROME))),
        ({"tools": [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}]},
         call_text("weather", json.dumps(ROME))),
    ],
)  # fmt: skip
async def test_the_guide_holds_behind_the_thought(opened: Path, more: dict[str, Any], said: str) -> None:
    async with gateway(opened, thinks_on(opened, said), features=NATIVE, max_seq_len=4096) as running:
        answer = await whole(running, thinking_token_budget=10, **more)
        message = answer.choices[0].message
        assert message.model_extra == {"reasoning_content": "x" * 10}
        if "tools" in more:
            assert [(call.type, call.function.arguments) for call in message.tool_calls or []
                    if call.type == "function"] == [("function", json.dumps(ROME))]  # fmt: skip
        else:
            assert message.content == said
        guides = [request.params.guide for request in running.engine.requests]
        assert all(guide is not None and guide.kind == "structural_tag" for guide in guides)
        assert ["</think>" in guide.text for guide in guides if guide] == [True, False]


async def test_a_client_that_leaves_cancels_what_runs(opened: Path) -> None:
    ids = ByteIds(opened)
    held = asyncio.Event()

    def script(request: GenerationRequest) -> list[Step]:
        if len(running.engine.requests) == 1:
            return [EngineChunk(ids=[index]) for index in ids.of("x" * 50)]
        return [EngineChunk(ids=ids.of("S")), held]

    async with gateway(opened, script, features=UNGUIDED, max_seq_len=4096, served=True) as running:
        body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        async with running.client.stream(
            "POST", "/v1/chat/completions", json={**body, "thinking_token_budget": 10}
        ) as answer:
            async for line in answer.aiter_lines():
                if '"content":"S"' in line:
                    break
            running.engine.left.clear()
        await asyncio.wait_for(running.engine.left.wait(), 10)
        assert running.engine.closed_early == [request.id for request in running.engine.requests]


async def test_where_nothing_can_be_ended_the_budget_is_named(opened: Path, tmp_path: Path) -> None:
    plain = write_tokenizer(tmp_path, "{% for message in messages %}{{ message.content }}{% endfor %}")
    text = dataclasses.replace(UNGUIDED, path="ensemble", prompt_ids=False)
    for folder, features in ((plain, UNGUIDED), (opened, text)):
        async with gateway(folder, says(folder, "Sunny."), features=features, max_seq_len=4096) as running:
            answer = await running.chat(thinking_token_budget=5)
            assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (200, "thinking_token_budget")
            message = await messages_harness.post(running, thinking={"type": "enabled", "budget_tokens": 5})
            assert "thinking.budget_tokens" in message.headers["x-ignored-parameters"]
            listed = (await running.client.get("/v1/models/scripted")).json()
            assert listed["capabilities"]["thinking_token_budget"]["how"] == "impossible"
    async with gateway(plain, features=UNGUIDED, policies={"hints": "strict"}) as running:
        assert (await running.chat(thinking_token_budget=5)).status_code == 400
        message = await messages_harness.post(running, thinking={"type": "enabled", "budget_tokens": 5})
        assert message.status_code == 200


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"thinking_token_budget": -2}, "integer_below_min_value"),
        ({"thinking_token_budget": "5"}, "invalid_type"),
        ({"thinking_token_budget": 5, "prompt_logprobs": 1}, "invalid_value"),
        ({"thinking_token_budget": 5, "use_beam_search": True, "best_of": 2}, "invalid_value"),
    ],
)
async def test_bad_budgets(opened: Path, more: dict[str, Any], code: str) -> None:
    async with gateway(opened, features=UNGUIDED) as running:
        answer = await running.chat(**more)
        rejected(answer, 400, "thinking_token_budget", code)


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
