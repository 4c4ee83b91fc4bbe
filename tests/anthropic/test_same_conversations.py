"""One conversation by chat, Responses and Messages: the same prompt for the engine, and the same answer."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.anthropic.messages_harness import streamed as streamed_message
from tests.anthropic.messages_harness import whole as whole_message
from tests.anthropic.test_messages_like_chat import of_chat
from tests.anthropic.test_messages_like_chat import parts_of as parts_of_message
from tests.openai.responses_harness import running
from tests.openai.responses_harness import streamed as streamed_response
from tests.openai.responses_harness import whole as whole_response
from tests.openai.test_responses_like_chat import EXAMPLES, NAMES, parts_of_chat
from tests.openai.test_responses_like_chat import parts_of as parts_of_response
from tests.openai.tools_harness import CITY, UNGUIDED, call_text, tool

WORDS = st.text("ab é🙂<>\n", min_size=1, max_size=8).filter(str.strip)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), st.fixed_dictionaries({"city": WORDS})), max_size=3)
TURN = st.fixed_dictionaries(
    {
        "asked": st.lists(WORDS, min_size=1, max_size=2),
        "thought": st.one_of(st.just(""), WORDS),
        "said": st.one_of(st.just(""), WORDS),
        "calls": CALLS,
    }
).filter(lambda turn: turn["said"] or turn["calls"])


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Any]:
    """Instructions, turns of a user and an assistant whose calls are answered, and what is asked at last."""
    turns = draw(st.lists(TURN, max_size=3))
    for place, turn in enumerate(turns):
        turn["calls"] = [(f"call_{place}{index}", *call) for index, call in enumerate(turn["calls"])]
        turn["results"] = [draw(WORDS) for _ in turn["calls"]]
    last = [] if turns and turns[-1]["calls"] and draw(st.booleans()) else [draw(WORDS)]
    return {"instructions": draw(st.one_of(st.just(""), WORDS)), "turns": turns, "last": last}


def written(arguments: dict[str, Any]) -> str:
    """Arguments as Messages write them, whose clients have the object alone."""
    return json.dumps(arguments, ensure_ascii=False)


def as_chat(conversation: dict[str, Any]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if conversation["instructions"]:
        messages.append({"role": "system", "content": conversation["instructions"]})
    for turn in conversation["turns"]:
        messages.append({"role": "user", "content": [{"type": "text", "text": text} for text in turn["asked"]]})
        said: dict[str, Any] = {"role": "assistant", "content": turn["said"] or None}
        if turn["thought"]:
            said["reasoning_content"] = turn["thought"]
        if turn["calls"]:
            said["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": written(arguments)}}
                for id_, name, arguments in turn["calls"]
            ]
        messages.append(said)
        messages += [{"role": "tool", "tool_call_id": call[0], "content": result}
                     for call, result in zip(turn["calls"], turn["results"], strict=True)]  # fmt: skip
    messages += [{"role": "user", "content": text} for text in conversation["last"]]
    return {"messages": messages, "tools": [tool(name) for name in NAMES]}


def as_response(conversation: dict[str, Any]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for turn in conversation["turns"]:
        items.append({"role": "user", "content": [{"type": "input_text", "text": text} for text in turn["asked"]]})
        if turn["thought"]:
            content = [{"type": "reasoning_text", "text": turn["thought"]}]
            items.append({"type": "reasoning", "id": "rs_1", "summary": [], "content": content})
        if turn["said"]:
            items.append({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                          "content": [{"type": "output_text", "text": turn["said"], "annotations": []}]})  # fmt: skip
        items += [{"type": "function_call", "call_id": id_, "name": name, "arguments": written(arguments)}
                  for id_, name, arguments in turn["calls"]]  # fmt: skip
        items += [{"type": "function_call_output", "call_id": call[0], "output": result}
                  for call, result in zip(turn["calls"], turn["results"], strict=True)]  # fmt: skip
    items += [{"role": "user", "content": text} for text in conversation["last"]]
    tools = [{"type": "function", **tool(name)["function"]} for name in NAMES]
    instructions = {"instructions": conversation["instructions"]} if conversation["instructions"] else {}
    return {**instructions, "input": items, "tools": tools}


def as_messages(conversation: dict[str, Any]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    for turn in conversation["turns"]:
        asked = [{"type": "text", "text": text} for text in turn["asked"]]
        messages.append({"role": "user", "content": [*left, *asked]})
        said = [{"type": "thinking", "thinking": turn["thought"], "signature": ""}] if turn["thought"] else []
        said += [{"type": "text", "text": turn["said"]}] if turn["said"] else []
        said += [{"type": "tool_use", "id": id_, "name": name, "input": arguments}
                 for id_, name, arguments in turn["calls"]]  # fmt: skip
        messages.append({"role": "assistant", "content": said})
        left = [{"type": "tool_result", "tool_use_id": call[0], "content": result}
                for call, result in zip(turn["calls"], turn["results"], strict=True)]  # fmt: skip
    last = [{"type": "text", "text": text} for text in conversation["last"]]
    messages.append({"role": "user", "content": [*left, *last]})
    system = {"system": conversation["instructions"]} if conversation["instructions"] else {}
    return {**system, "messages": messages, "tools": [{"name": name, "input_schema": CITY} for name in NAMES]}


SETTINGS = st.fixed_dictionaries(
    {}, optional={"temperature": st.sampled_from([0, 0.5, 1]), "top_p": st.sampled_from([0.5, 1])}
)


def test_the_same_conversation_by_three_apis(thinks: Path) -> None:
    with running(thinks, UNGUIDED) as (engine, asked):

        def last() -> Any:
            request = asked.engine.requests[-1]
            more = {
                "max_tokens_name": "",
                "clamp_max_tokens": True,
                "stream": False,
                "most_stops": 4,
            }  # of errors, and of the answer
            return request.prompt, dataclasses.replace(request.params, **more), request.max_tokens

        @EXAMPLES
        @given(
            conversation=conversations(),
            thought=st.one_of(st.just(""), WORDS),
            text=st.one_of(st.just(""), WORDS),
            calls=CALLS,
            sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
            chosen=SETTINGS,
        )
        def check(
            conversation: dict[str, Any], thought: str, text: str, calls: list[Any], sizes: list[int], chosen: Any
        ) -> None:
            async def ask() -> None:
                said = "".join(call_text(name, written(arguments)) for name, arguments in calls)
                engine.say((f"<think>\n{thought}\n</think>\n\n" if thought else "") + text + said, sizes)
                chat = await parts_of_chat(asked, **as_chat(conversation), **chosen, max_tokens=600)
                request = last()
                body = {**as_response(conversation), **chosen, "max_output_tokens": 600}
                for by_responses in (whole_response, streamed_response):
                    assert parts_of_response(await by_responses(asked, **body)) == chat
                    assert last() == request
                body = {**as_messages(conversation), **chosen, "max_tokens": 600}
                for by_messages in (whole_message, streamed_message):
                    assert parts_of_message(await by_messages(asked, **body)) == of_chat(chat)
                    assert last() == request

            engine.loop.run_until_complete(ask())

        check()


@pytest.mark.parametrize("stop", ["b", "never"])
def test_a_stop_text_by_chat_and_messages(thinks: Path, stop: str) -> None:
    """OpenAI's Responses have no such field; as an extension they take chat's."""
    with running(thinks, UNGUIDED) as (engine, asked):

        async def ask() -> None:
            engine.say("aabaa", [2])
            chat = await parts_of_chat(asked, stop=[stop], max_tokens=50)
            message = parts_of_message(await whole_message(asked, stop_sequences=[stop]))
            response = parts_of_response(await streamed_response(asked, stop=[stop]))
            assert chat["content"] == message["content"] == response["content"] == "aabaa".partition(stop)[0]
            assert chat["usage"] == message["usage"] == response["usage"]

        engine.loop.run_until_complete(ask())
