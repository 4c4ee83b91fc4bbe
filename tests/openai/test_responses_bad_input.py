"""Bodies that went wrong anywhere: refused by name or served, never an error of the server, never an endless stream."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.scripted import MODEL
from tests.openai.responses_harness import events_of, running
from tests.openai.tools_harness import CITY, GUIDED, UNGUIDED, call_text
from tests.rings import examples

# As an agent sends them: all kinds of items and tools, and fields that other servers do not know.
AGENT: dict[str, Any] = {
    "model": MODEL,
    "instructions": "Be terse.",
    "input": [
        {"type": "message", "id": "msg_0", "role": "developer", "content": [{"type": "input_text", "text": "Help."}]},
        {"role": "user", "content": "List the files."},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "**Listing**"}],
         "content": None, "encrypted_content": "b3BhcXVl"},
        {"type": "message", "role": "assistant", "status": "completed", "phase": "commentary",
         "content": [{"type": "output_text", "text": "So.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c1", "name": "close",
         "namespace": "agents", "arguments": '{"city": "x"}'},
        {"type": "custom_tool_call", "id": "ctc_1", "status": "completed", "call_id": "c2", "name": "patch",
         "input": "+"},
        {"type": "function_call_output", "id": "o1", "call_id": "c1", "output": [
            {"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": "data:", "detail": "high"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "item_reference", "id": "rs_1"},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "moon"}]},
        {"type": "compaction", "encrypted_content": "x"},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
    "tools": [
        {"type": "function", "name": "ls", "description": "Lists.", "strict": False, "parameters": CITY},
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [
            {"type": "function", "name": "close", "strict": True, "parameters": CITY}]},
        {"type": "custom", "name": "patch",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
        {"type": "custom", "name": "date", "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "function", "name": "ls"}, {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "agents"}]},
    "parallel_tool_calls": True,
    "reasoning": {"effort": "high", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "store": False,
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "stream_options": {"include_obfuscation": False},
    "max_output_tokens": 60,
    "top_logprobs": 0,
    "metadata": {"a": "b"},
    "prompt_cache_key": "00000000",
    "client_metadata": {"turn_id": "1"},
}  # fmt: skip
# A body may spoil the schema of the tool that the engine calls: then its answer is none, as the client is told.
MISFIT = "The model called 'agents__close' with arguments that do not match the schema of the tool."
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.sampled_from([2**64, -(10**30)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "function", "message", "reasoning", "item_reference", "required", "\u2028", "a" * 300]),
    st.sampled_from([[], {}, [[]], [{}], {"type": 7}, {"type": "function"}, {"role": "user"}, {"type": "x", "id": 1}]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a body."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in pairs:
        yield (*path, key)
        yield from places(child, (*path, key))


@st.composite
def bodies(draw: st.DrawFn, sound: dict[str, Any]) -> dict[str, Any]:
    """A body with one to three places changed, taken away or doubled."""
    body = copy.deepcopy(sound)
    for place in draw(st.lists(st.sampled_from(list(places(sound))), min_size=1, max_size=3)):
        target: Any = body
        try:
            for key in place[:-1]:
                target = target[key]
            action = draw(st.sampled_from(["change", "remove", "double"]))
            if action == "remove":
                del target[place[-1]]
            elif action == "double" and isinstance(target, list):
                target.append(copy.deepcopy(target[place[-1]]))
            else:
                target[place[-1]] = copy.deepcopy(draw(JUNK))  # which later changes may change in turn
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    return body


@pytest.mark.parametrize("features", [UNGUIDED, GUIDED], ids=["unguided", "guided"])
def test_a_body_that_went_wrong(shows: Path, features: Any) -> None:
    with running(shows, features) as (engine, asked):
        engine.say("Sure. " + call_text("agents__close", '{"city": "x"}'), [3])

        @settings(max_examples=examples(180, long=1500))
        @given(body=bodies(AGENT), stream=st.booleans())
        def check(body: dict[str, Any], stream: bool) -> None:
            if isinstance(body.get("stream"), bool) or "stream" not in body:
                body["stream"] = stream
            answer = engine.loop.run_until_complete(asked.client.post("/v1/responses", json=body))
            if MISFIT in answer.text:
                return
            assert answer.status_code in {200, 400, 404}, answer.text
            if answer.status_code == 200:
                # What is repeated of such a body need not be of OpenAI's types.
                response = events_of(answer.text)[-1]["response"] if body["stream"] else answer.json()
                assert response["status"] in {"completed", "incomplete"}
            else:
                error = answer.json()["error"]
                assert error["message"]
                assert error["type"] == "invalid_request_error"
                for word in ("messages[", "response_format", ".function.", "max_completion_tokens"):
                    assert word not in f"{error['param']} {error['message']}"

        check()
