"""Pydantic AI by the names of models alone: ``openai:`` takes Responses, ``anthropic:`` Messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lazy_module import LazyModule
from tests.scripted_engine.replay import turn
from tests.sdks.conftest import (
    BOTH,
    FIRST_THOUGHT,
    LAST_THOUGHT,
    MODEL,
    QUESTION,
    SAID,
    WAYS,
    Place,
    Stack,
    get_weather,
)

if TYPE_CHECKING:
    import pydantic_ai
else:
    pydantic_ai = LazyModule("pydantic_ai")

PATHS = {"openai": "/v1/responses", "anthropic": "/v1/messages"}
APIS = pytest.mark.parametrize("api", PATHS)


@pytest.fixture(autouse=True)
def _settings(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{stack.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", stack.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")


def said_in(part: pydantic_ai.ThinkingPart) -> str:
    """The thought, which is kept aside where it is no summary."""
    return part.content or "".join((part.provider_details or {})["raw_content"])


@APIS
@WAYS
@BOTH
async def test_a_loop_of_tools(stack: Stack, api: str, streamed: bool, thought: bool) -> None:
    stack.play_loop(thought=thought)
    async with pydantic_ai.Agent(f"{api}:{MODEL}", instructions="Be brief.", tools=[get_weather]) as agent:
        if streamed:
            async with agent.run_stream_events(QUESTION) as run:
                events = [event async for event in run]
            assert isinstance(events[-1], pydantic_ai.AgentRunResultEvent)
            result = events[-1].result
            begun = [event.part for event in events if isinstance(event, pydantic_ai.PartStartEvent)]
            deltas = [event.delta for event in events if isinstance(event, pydantic_ai.PartDeltaEvent)]
            texts = [part.content for part in begun if isinstance(part, pydantic_ai.TextPart)]
            texts += [delta.content_delta for delta in deltas if isinstance(delta, pydantic_ai.TextPartDelta)]
            assert sum(map(len, texts)) == len(f"Two more.{SAID}")
        else:
            result = await agent.run(QUESTION)
    assert result.output == SAID
    messages, usage = result.all_messages(), result.usage
    answers = [message for message in messages if isinstance(message, pydantic_ai.ModelResponse)]
    thoughts = [part for answer in answers for part in answer.parts if isinstance(part, pydantic_ai.ThinkingPart)]
    assert [said_in(part) for part in thoughts] == ([FIRST_THOUGHT, LAST_THOUGHT] if thought else [])
    stack.check_loop(PATHS[api])
    assert usage.requests == 3
    assert usage.input_tokens == sum(stack.prompt_tokens())
    assert stack.shows_thought() == [False, thought, thought]


@WAYS
async def test_an_output_of_a_type(stack: Stack, streamed: bool) -> None:
    """Asked of OpenAI's API alone: of Anthropic's, the library knows by a model's name whether it can."""
    stack.play(turn(text='{"city": "Rome"}<|im_end|>'))
    async with pydantic_ai.Agent(f"openai:{MODEL}", output_type=pydantic_ai.NativeOutput(Place)) as agent:
        if streamed:
            async with agent.run_stream("Where?") as run:
                assert await run.get_output() == Place(city="Rome")
        else:
            assert (await agent.run("Where?")).output == Place(city="Rome")
    stack.check_schema(PATHS["openai"])


@APIS
async def test_an_output_by_a_tool(stack: Stack, api: str) -> None:
    """A type without more is asked for as a call that is demanded."""
    call = '<tool_call>\n{"name": "final_result", "arguments": {"city": "Rome"}}\n</tool_call>'
    stack.play(turn(text=f"{call}<|im_end|>"))
    async with pydantic_ai.Agent(f"{api}:{MODEL}", output_type=Place) as agent:
        assert (await agent.run("Where?")).output == Place(city="Rome")
    stack.check_schema(PATHS[api])
