"""Chat completions and messages give the same answer to the same request, however the engine's text is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.anthropic.messages_harness import message_types, streamed, whole
from tests.openai.responses_harness import running
from tests.openai.test_responses_like_chat import EXAMPLES, NAMES, TEXTS, answers, parts_of_chat
from tests.openai.tools_harness import CITY, GUIDED, UNGUIDED, guided_text, tool

TOOLS = [tool(name) for name in NAMES]
OURS = [{"name": each["function"]["name"], "input_schema": CITY} for each in TOOLS]


def parts_of(message: message_types.Message) -> dict[str, Any]:
    """What a message says, in chat's terms."""
    usage = message.usage
    thinking = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0
    return {
        "content": message.text,
        "calls": [(call.name, call.input) for call in message.calls],
        "reasoning": message.thinking,
        "cut": message.stop_reason == "max_tokens",
        "usage": (usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens, thinking),
    }


def of_chat(parts: dict[str, Any]) -> dict[str, Any]:
    return {**parts, "calls": [(name, json.loads(arguments)) for name, arguments in parts["calls"]]}


def is_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("mode", ["plain", "tools", "one call"])
def test_the_same_request_has_the_same_answer(thinks: Path, mode: str) -> None:
    with running(thinks, UNGUIDED) as (engine, asked):

        @EXAMPLES
        @given(text=answers(), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), limit=st.integers(1, 120))
        def check(text: str, sizes: list[int], limit: int) -> None:
            async def ask() -> None:
                engine.say(text, sizes)
                body: dict[str, Any] = (
                    {} if mode == "plain" else {"tools": TOOLS, "parallel_tool_calls": mode == "tools"}
                )
                more: dict[str, Any] = {"max_tokens": limit}
                if mode != "plain":
                    choice = {"type": "auto", "disable_parallel_tool_use": mode != "tools"}
                    more |= {"tools": OURS, "tool_choice": choice}
                chat = await parts_of_chat(asked, **body, max_tokens=limit)
                prompt = asked.engine.requests[-1].prompt.text
                message = parts_of(await whole(asked, **more))
                assert asked.engine.requests[-1].prompt.text == prompt
                if all(is_whole(arguments) for _, arguments in chat["calls"]):
                    assert message == of_chat(chat)
                    assert parts_of(await streamed(asked, **more)) == message

            engine.loop.run_until_complete(ask())

        check()


def test_demanded_calls_are_the_same_too(thinks: Path) -> None:
    with running(thinks, GUIDED) as (engine, asked):

        @EXAMPLES
        @given(
            calls=st.lists(
                st.tuples(st.sampled_from(NAMES), st.fixed_dictionaries({"city": TEXTS})), min_size=1, max_size=3
            ),
            sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
        )
        def check(calls: list[tuple[str, Any]], sizes: list[int]) -> None:
            async def ask() -> None:
                engine.say(guided_text(*calls), sizes)
                chat = await parts_of_chat(asked, tools=TOOLS, tool_choice="required", max_tokens=400)
                guide = asked.engine.requests[-1].params.guide
                body = {"tools": OURS, "tool_choice": {"type": "any"}, "max_tokens": 400}
                for message in (await whole(asked, **body), await streamed(asked, **body)):
                    assert parts_of(message) == of_chat(chat)
                    assert message.stop_reason == "tool_use"
                    assert asked.engine.requests[-1].params.guide == guide

            engine.loop.run_until_complete(ask())

        check()
