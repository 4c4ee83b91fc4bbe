"""One conversation by chat, Responses and Messages: the same prompt for the engine, and the same answer."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.anthropic.messages_harness import streamed as streamed_message
from tests.anthropic.messages_harness import whole as whole_message
from tests.app.harness import Gateway
from tests.app.scripted import write_tokenizer
from tests.conversations.clients import Chat, Client, Messages, Responses
from tests.openai.responses_harness import running
from tests.openai.responses_harness import streamed as streamed_response
from tests.openai.responses_harness import whole as whole_response
from tests.openai.tools_harness import CITY, GUIDED, SHOWS_TOOLS, UNGUIDED, call_text, guided_text, tool
from tests.openai.tools_harness import whole as whole_chat
from tests.rings import examples

TEXTS = st.text('ab <>{}"\\né🙂\u2028', max_size=12)
WORDS = st.text("ab é🙂<>\n", min_size=1, max_size=8).filter(str.strip)
NAMES = ("weather", "time")
TOOLS = [tool(name) for name in NAMES]
EXAMPLES = settings(max_examples=examples(36, long=300))
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), st.fixed_dictionaries({"city": TEXTS})), min_size=1, max_size=3)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)
TURN = st.fixed_dictionaries(
    {
        "asked": st.lists(WORDS, min_size=1, max_size=2),
        "thought": st.one_of(st.just(""), WORDS),
        "said": st.one_of(st.just(""), WORDS),
        "calls": st.one_of(st.just([]), CALLS),
    }
).filter(lambda turn: turn["said"] or turn["calls"])
CHOSEN = st.fixed_dictionaries(
    {}, optional={"temperature": st.sampled_from([0, 0.5, 1]), "top_p": st.sampled_from([0.5, 1])}
)


@pytest.fixture(scope="module")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("three-apis"), SHOWS_TOOLS + "{# <think> #}")


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
    return {"messages": messages}


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
    instructions = {"instructions": conversation["instructions"]} if conversation["instructions"] else {}
    return {**instructions, "input": items}


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
    return {**system, "messages": messages}


def of_responses(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "function", **each["function"]} for each in tools]


OF_MESSAGES = [{"name": name, "input_schema": CITY} for name in NAMES]


@st.composite
def answers(draw: st.DrawFn) -> str:
    """What a model may say: reasoning, texts and calls, some of them broken."""
    thought = draw(st.sampled_from(["", "<think>\n{}\n</think>\n\n", "<think>{}"])).format(draw(TEXTS))
    call = st.builds(
        call_text, st.sampled_from([*NAMES, "nobody"]), st.sampled_from(['{"city": "é"}', "{}", '{"city": "a', "7"])
    )
    return thought + "".join(draw(st.lists(st.one_of(TEXTS, call), max_size=4)))


def parts_of(client: Client, answer: Any) -> dict[str, Any]:
    """What an answer says, in chat's terms."""
    body = answer.to_dict()
    said, usage = client.whole(body), body["usage"]
    ends = {body.get("status"), body.get("stop_reason"), *(each["finish_reason"] for each in body.get("choices", ()))}
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
    return {
        "content": "".join(said.texts),
        "calls": [call[1:] for call in said.calls],
        "reasoning": "".join(said.thoughts),
        "cut": not ends.isdisjoint({"length", "incomplete", "max_tokens"}),
        "usage": (
            usage.get("prompt_tokens", usage.get("input_tokens")) + usage.get("cache_read_input_tokens", 0),
            usage.get("completion_tokens", usage.get("output_tokens")),
            details.get("reasoning_tokens", details.get("thinking_tokens", 0)),
        ),
    }


def for_messages(parts: dict[str, Any]) -> dict[str, Any] | None:
    """What chat says, with arguments as objects; None where some are broken, which Messages cannot have."""
    try:
        calls = [(name, json.loads(arguments)) for name, arguments in parts["calls"]]
    except ValueError:
        return None
    return {**parts, "calls": calls} if all(isinstance(given, dict) for _, given in calls) else None


# By each mode what a request has of tools, in chat's terms and in those of Messages.
MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "tools": ({"tools": TOOLS}, {"tools": OF_MESSAGES}),
    "one call": (
        {"tools": TOOLS, "parallel_tool_calls": False},
        {"tools": OF_MESSAGES, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
}


def last(asked: Gateway) -> Any:
    """What the engine was asked, without what is only of errors and of the answer."""
    request = asked.engine.requests[-1]
    more: dict[str, Any] = {"max_tokens_name": "", "clamp_max_tokens": True, "stream": False, "most_stops": 4}
    return request.prompt, dataclasses.replace(request.params, **more), request.max_tokens


async def check_the_same(
    asked: Gateway, chat: dict[str, Any], response: dict[str, Any], message: dict[str, Any], limit: int
) -> dict[str, Any]:
    """Send the bodies of one request by each API, whole and streamed; what chat says."""
    said = parts_of(Chat(), await whole_chat(asked, **chat, max_tokens=limit))
    request, of_messages = last(asked), for_messages(said)
    for by_responses in (whole_response, streamed_response):
        assert parts_of(Responses(), await by_responses(asked, **response, max_output_tokens=limit)) == said
        assert last(asked) == request
    for by_messages in (whole_message, streamed_message) if of_messages else (whole_message,):
        got = parts_of(Messages(), await by_messages(asked, **message, max_tokens=limit))
        assert of_messages in (None, for_messages(got))
        assert last(asked) == request
    return said


@pytest.mark.parametrize("mode", MODES)
def test_the_same_conversation_by_three_apis(thinks: Path, mode: str) -> None:
    """However the engine's text is cut, and whatever it says."""
    tools, own = MODES[mode]
    of_response = tools | ({"tools": of_responses(TOOLS)} if tools else {})
    with running(thinks, UNGUIDED) as (engine, asked):

        @EXAMPLES
        @example({"instructions": "", "turns": [], "last": ["Hi"]}, call_text("time", "{}") * 2, [9], 600, {})
        @given(conversations(), answers(), SIZES, st.integers(1, 120) | st.just(600), CHOSEN)
        def check(conversation: dict[str, Any], text: str, sizes: list[int], limit: int, chosen: Any) -> None:
            engine.say(text, sizes)
            bodies = (
                as_chat(conversation) | tools | chosen,
                as_response(conversation) | of_response | chosen,
                as_messages(conversation) | own | chosen,
            )
            engine.loop.run_until_complete(check_the_same(asked, *bodies, limit))

        check()


SCHEMA = {"name": "place", "schema": CITY, "strict": True}
FORM = {"type": "json_schema", "schema": CITY}
DEMANDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "calls": (
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": of_responses(TOOLS), "tool_choice": "required"},
        {"tools": OF_MESSAGES, "tool_choice": {"type": "any"}},
    ),
    "a schema": (
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"text": {"format": {"type": "json_schema", **SCHEMA}}},
        {"output_config": {"format": FORM}},
    ),
}
DEMANDS["a schema by its former name"] = (*DEMANDS["a schema"][:2], {"output_format": FORM})


@pytest.mark.parametrize("form", DEMANDS)
def test_guided_answers_are_the_same_too(thinks: Path, form: str) -> None:
    with running(thinks, GUIDED) as (engine, asked):

        @EXAMPLES
        @given(CALLS, SIZES, st.integers(1, 150) | st.just(400))
        def check(calls: list[tuple[str, Any]], sizes: list[int], limit: int) -> None:
            engine.say(guided_text(*calls) if form == "calls" else json.dumps(calls[0][1]), sizes)
            engine.loop.run_until_complete(check_the_same(asked, *DEMANDS[form], limit))

        check()


@pytest.mark.parametrize("stop", ["b", "never"])
def test_a_stop_text_by_three_apis(thinks: Path, stop: str) -> None:
    """OpenAI's Responses have no such field; as an extension they take chat's."""
    with running(thinks, UNGUIDED) as (engine, asked):
        engine.say("aabaa", [2])
        bodies = {"stop": [stop]}, {"stop": [stop]}, {"stop_sequences": [stop]}
        said = engine.loop.run_until_complete(check_the_same(asked, *bodies, 50))
        assert said["content"] == "aabaa".partition(stop)[0]
