"""A chain of kept responses is prompted as the same conversation sent whole, whatever was said and called in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.scripted import write_tokenizer
from tests.conversations.test_three_apis import EXAMPLES, NAMES, TEXTS, answers, of_responses
from tests.openai.responses_harness import running, streamed, whole
from tests.openai.tools_harness import SHOWS_TOOLS, UNGUIDED, call_text, tool

TOOLS: list[dict[str, Any]] = [
    *of_responses([tool(name) for name in NAMES]),
    {"type": "custom", "name": "note"},
    {"type": "namespace", "name": "home", "description": "The house.", "tools": of_responses([tool("open")])},
]
NUMBER = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**70}}}  # exact, though kept as JSON
LATER = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [{**each, "parameters": NUMBER} for each in of_responses([tool("later")])],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("chain"), SHOWS_TOOLS + "{# <think> #}")


@st.composite
def turns(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]] | str, dict[str, Any]]:
    """What the model says, what the user says before it, and further fields."""
    more = st.sampled_from(
        ["", call_text("note", '{"input": "é\\n"}'), call_text("home__open", '{"city": "x"}'), call_text("later", "{}")]
    )
    said = draw(answers()) + draw(more)
    message = st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "developer", "assistant"]), TEXTS
    )
    parts = st.builds(
        lambda texts: {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts],
        },
        st.lists(TEXTS, max_size=2),
    )  # fmt: skip
    thought = st.builds(
        lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}, TEXTS
    )
    items = st.lists(st.one_of(message, parts, thought, st.just(LATER)), max_size=3)
    asked: Any = draw(st.one_of(TEXTS, items))
    fields: dict[str, Any] = draw(st.sampled_from([{}, {"instructions": "Be terse."}, {"max_output_tokens": 30}]))
    return said, asked if isinstance(asked, str) else [*asked, {"role": "user", "content": "Go on."}], fields


def results(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An answer to each call."""
    return [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": f"done {place}"}
        for place, item in enumerate(output)
        if item["type"] in {"function_call", "custom_tool_call"}
    ]


def test_a_chain_is_the_whole_conversation(folder: Path) -> None:
    with running(folder, UNGUIDED) as (engine, asked):

        @EXAMPLES
        @given(conversation=st.lists(turns(), min_size=1, max_size=4), sizes=st.lists(st.integers(1, 9), min_size=1))
        def check(conversation: list[Any], sizes: list[int]) -> None:
            async def ask() -> None:
                previous: str | None = None
                sent: list[Any] = []
                called: list[Any] = []
                for place, (said, given_input, fields) in enumerate(conversation):
                    engine.say(said, sizes)
                    items = [{"role": "user", "content": given_input}] if isinstance(given_input, str) else given_input
                    sent += [*called, *items]
                    way = streamed if place % 2 else whole
                    own = [*called, *items] if called else given_input
                    response = await way(asked, input=own, tools=TOOLS, previous_response_id=previous, **fields)
                    other = await whole(asked, input=sent, tools=TOOLS, store=False, **fields)
                    chained, at_once = (request.prompt.ids for request in asked.engine.requests[-2:])
                    assert chained == at_once
                    assert response.usage == other.usage
                    output = [item.to_dict() for item in response.output]
                    sent += output
                    called, previous = results(output), response.id

            engine.loop.run_until_complete(ask())

        check()
