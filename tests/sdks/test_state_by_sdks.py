"""Kept responses by SDKs: they go on from one, poll one in the background, and look at its items."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI, NotFoundError, OpenAI

from tests.lazy_module import LazyModule
from tests.scripted_engine.replay import turn
from tests.sdks.conftest import BOTH, FIRST_THOUGHT, LAST_THOUGHT, MODEL, QUESTION, SAID, Stack, get_weather
from tests.sdks.test_openai_agents import agent
from tests.stack import strict_client

if TYPE_CHECKING:
    import agents
    import langchain.messages
    import langchain.tools
    import langchain_openai
else:
    agents = LazyModule("agents")
    langchain = LazyModule("langchain")
    langchain_openai = LazyModule("langchain_openai")

PATH = "/v1/responses"


@pytest.fixture
def sdk(stack: Stack) -> Iterator[OpenAI]:
    with strict_client(stack.url) as client:
        yield client


def remember(stack: Stack) -> None:
    stack.play(turn("number is 7", text="I see.<|im_end|>"), turn("number is 7.*Which", text="It is 7.<|im_end|>"))


def test_a_response_is_kept_until_it_is_deleted(stack: Stack, sdk: OpenAI) -> None:
    remember(stack)
    first = sdk.responses.create(model=MODEL, input="The number is 7.")
    second = sdk.responses.create(model=MODEL, input="Which?", previous_response_id=first.id)
    assert second.output_text == "It is 7."
    assert sdk.responses.retrieve(second.id) == second
    said = [item.to_dict() for item in sdk.responses.input_items.list(second.id, order="asc")]
    assert [item["content"] for item in said][-1] == [{"type": "input_text", "text": "Which?"}]
    with sdk.responses.stream(model=MODEL, input="Which?", previous_response_id=first.id) as stream:
        assert stream.get_final_response().output_text == "It is 7."
    sdk.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        sdk.responses.retrieve(first.id)


def test_a_response_in_the_background_is_polled(stack: Stack, sdk: OpenAI) -> None:
    remember(stack)
    response = sdk.responses.create(model=MODEL, input="The number is 7.", background=True)
    assert response.status in {"queued", "in_progress"}
    deadline = time.monotonic() + 60
    while response.status in {"queued", "in_progress"} and time.monotonic() < deadline:
        response = sdk.responses.retrieve(response.id)
    assert (response.status, response.output_text) == ("completed", "I see.")


def test_a_response_in_the_background_is_cancelled(stack: Stack, sdk: OpenAI) -> None:
    stack.play(turn(text="I", hold=True))
    response = sdk.responses.create(model=MODEL, input="The number is 7.", background=True)
    assert sdk.responses.cancel(response.id).status == "cancelled"
    assert sdk.responses.retrieve(response.id).status == "cancelled"


def test_a_stream_of_the_background_is_resumed(stack: Stack, sdk: OpenAI) -> None:
    remember(stack)
    with sdk.responses.create(model=MODEL, input="The number is 7.", background=True, stream=True) as events:
        begun: Any = next(iter(events))
    with sdk.responses.retrieve(begun.response.id, stream=True, starting_after=begun.sequence_number) as events:
        kinds = [event.type for event in events]
    assert kinds[-1] == "response.completed"


@BOTH
async def test_agents_go_on_from_the_last_response(stack: Stack, config: agents.RunConfig, thought: bool) -> None:
    stack.play_loop(thought=thought)
    tools = [agents.function_tool(get_weather)]
    result = await agents.Runner.run(agent(tools=tools), QUESTION, run_config=config, auto_previous_response_id=True)
    assert result.final_output == SAID
    stack.check_loop(PATH)
    assert stack.shows_thought() == [False, thought, thought]


async def test_an_agent_s_session_is_a_conversation(stack: Stack) -> None:
    remember(stack)
    async with AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="unused", max_retries=0) as client:
        config = agents.RunConfig(model_provider=agents.OpenAIProvider(openai_client=client), tracing_disabled=True)
        session = agents.OpenAIConversationsSession(openai_client=client)
        talker = agents.Agent(name="talker", model=MODEL)
        await agents.Runner.run(talker, "The number is 7.", session=session, run_config=config)
        result = await agents.Runner.run(talker, "Which?", session=session, run_config=config)
        assert result.final_output == "It is 7."
        assert len(await session.get_items()) == 4
        await session.clear_session()
    assert [line for line in stack.asked() if not line.endswith(" 200")] == []


@BOTH
def test_langchain_goes_on_from_the_last_response(stack: Stack, thought: bool) -> None:
    stack.play_loop(thought=thought)
    tool = langchain.tools.tool(get_weather)
    llm = langchain_openai.ChatOpenAI(
        model=MODEL, base_url=f"{stack.url}/v1", api_key="unused", max_retries=0, use_previous_response_id=True
    ).bind_tools([tool])
    messages: list[Any] = [langchain.messages.HumanMessage(QUESTION)]
    while not isinstance(messages[-1], str):
        answer = llm.invoke(messages)
        messages.append(answer)
        messages += [tool.invoke(call) for call in answer.tool_calls] or [answer.text]
    assert messages[-1] == SAID
    stack.check_loop(PATH)
    assert stack.shows_thought() == [False, thought, thought]


def test_thoughts_stand_in_their_places(stack: Stack, sdk: OpenAI) -> None:
    """A response that goes on from others shows the model what it thought, though the client never sends it."""
    stack.play(
        turn("Begin", text=f"<think>\n{FIRST_THOUGHT}\n</think>\n\nI see.<|im_end|>"),
        turn("Go on", text=f"<think>\n{LAST_THOUGHT}\n</think>\n\nSo.<|im_end|>"),
    )
    first = sdk.responses.create(model=MODEL, input="Begin.")
    sdk.responses.create(model=MODEL, input="Go on.", previous_response_id=first.id)
    assert stack.shows_thought() == [False, True]
