"""Chat completions and responses give the same answer to the same request, however the engine's text is cut."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from tests.app.harness import Gateway
from tests.app.scripted import write_tokenizer
from tests.openai.responses_harness import running, streamed, whole
from tests.openai.tools_harness import CITY, GUIDED, SHOWS_TOOLS, UNGUIDED, call_text, guided_text, tool
from tests.openai.tools_harness import whole as whole_chat
from tests.rings import examples

TEXTS = st.text('ab <>{}"\\né🙂\u2028', max_size=12)
NAMES = ("weather", "time")


@pytest.fixture(scope="module")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("like-chat"), SHOWS_TOOLS + "{# <think> #}")


def parts_of(response: Response) -> dict[str, Any]:
    """What a response says, in chat's terms."""
    found = [item.to_dict() for item in response.output]
    usage = response.usage
    assert usage is not None
    calls = [(item["name"], item["arguments"]) for item in found if item["type"] == "function_call"]
    return {
        "content": response.output_text,
        "calls": calls,
        "reasoning": "".join(item["content"][0]["text"] for item in found if item["type"] == "reasoning"),
        "cut": response.status == "incomplete",
        "usage": (usage.input_tokens, usage.output_tokens, usage.output_tokens_details.reasoning_tokens),
    }


async def parts_of_chat(asked: Gateway, **body: Any) -> dict[str, Any]:
    """The same of a chat completion."""
    answer = await whole_chat(asked, **body)
    (choice,) = answer.choices
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    return {
        "content": choice.message.content or "",
        "calls": [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []
                  if call.type == "function"],
        "reasoning": (choice.message.model_extra or {}).get("reasoning_content") or "",
        "cut": choice.finish_reason == "length",
        "usage": (answer.usage.prompt_tokens, answer.usage.completion_tokens,
                  answer.usage.completion_tokens_details.reasoning_tokens),
    }  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> str:
    """What a model may say: reasoning, texts and calls, some of them broken."""
    thought = draw(st.sampled_from(["", "<think>\n{}\n</think>\n\n", "<think>{}"])).format(draw(TEXTS))
    call = st.builds(
        call_text, st.sampled_from([*NAMES, "nobody"]), st.sampled_from(['{"city": "é"}', "{}", '{"city": "a', "7"])
    )
    return thought + "".join(draw(st.lists(st.one_of(TEXTS, call), max_size=4)))


def of_responses(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "function", **each["function"]} for each in tools]


TOOLS = [tool(name) for name in NAMES]
EXAMPLES = settings(max_examples=examples(36, long=300))


@pytest.mark.parametrize("mode", ["plain", "tools", "one call"])
def test_the_same_request_has_the_same_answer(thinks: Path, mode: str) -> None:
    body: dict[str, Any] = {} if mode == "plain" else {"parallel_tool_calls": mode == "tools"}
    tools = [] if mode == "plain" else TOOLS
    with running(thinks, UNGUIDED) as (engine, asked):

        @EXAMPLES
        @given(text=answers(), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), limit=st.integers(1, 120))
        def check(text: str, sizes: list[int], limit: int) -> None:
            async def ask() -> None:
                engine.say(text, sizes)
                chat = await parts_of_chat(asked, **body, max_tokens=limit, **({"tools": tools} if tools else {}))
                prompt = asked.engine.requests[-1].prompt.text
                more = {**body, "max_output_tokens": limit, "tools": of_responses(tools)}
                assert parts_of(await whole(asked, **more)) == chat
                assert asked.engine.requests[-1].prompt.text == prompt
                assert parts_of(await streamed(asked, **more)) == chat

            engine.loop.run_until_complete(ask())

        check()


@pytest.mark.parametrize("form", ["demanded", "schema"])
def test_guided_answers_are_the_same_too(thinks: Path, form: str) -> None:
    with running(thinks, dataclasses.replace(GUIDED)) as (engine, asked):

        @EXAMPLES
        @given(
            calls=st.lists(
                st.tuples(st.sampled_from(NAMES), st.fixed_dictionaries({"city": TEXTS})), min_size=1, max_size=3
            ),
            sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
            limit=st.integers(1, 150),
        )
        def check(calls: list[tuple[str, Any]], sizes: list[int], limit: int) -> None:
            async def ask() -> None:
                engine.say(guided_text(*calls) if form == "demanded" else json.dumps(calls[0][1]), sizes)
                schema = {"name": "place", "schema": CITY, "strict": True}
                if form == "demanded":
                    chat_body: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required"}
                    body: dict[str, Any] = {"tools": of_responses(TOOLS), "tool_choice": "required"}
                else:
                    chat_body = {"response_format": {"type": "json_schema", "json_schema": schema}}
                    body = {"text": {"format": {"type": "json_schema", **schema}}}
                chat = await parts_of_chat(asked, **chat_body, max_tokens=limit)
                first = asked.engine.requests[-1]
                for response in (
                    await whole(asked, **body, max_output_tokens=limit),
                    await streamed(asked, **body, max_output_tokens=limit),
                ):
                    assert parts_of(response) == chat
                    assert asked.engine.requests[-1].params.guide == first.params.guide

            engine.loop.run_until_complete(ask())

        check()
