"""OpenAI's Agents SDK for Python with its defaults, which take Responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    import agents
else:
    agents = LazyModule("agents")

PATH = "/v1/responses"


def agent(**more: Any) -> agents.Agent:
    return agents.Agent(name="weather", instructions="Be brief.", model=MODEL, **more)


def thoughts_of(items: list[Any]) -> list[str]:
    return [
        part.text for item in items if isinstance(item, agents.ReasoningItem) for part in item.raw_item.content or []
    ]


@BOTH
@WAYS
async def test_a_loop_of_tools(stack: Stack, config: agents.RunConfig, streamed: bool, thought: bool) -> None:
    stack.play_loop(thought=thought)
    if streamed:
        run = agents.Runner.run_streamed(agent(tools=[agents.function_tool(get_weather)]), QUESTION, run_config=config)
        kinds = [event.data.type async for event in run.stream_events() if event.type == "raw_response_event"]
        assert kinds.count("response.completed") == 3
        assert kinds.count("response.function_call_arguments.done") == 3
        result: Any = run
    else:
        result = await agents.Runner.run(agent(tools=[agents.function_tool(get_weather)]), QUESTION, run_config=config)
    assert result.final_output == SAID
    assert thoughts_of(result.new_items) == ([FIRST_THOUGHT, LAST_THOUGHT] if thought else [])
    usage = result.context_wrapper.usage
    stack.check_loop(PATH)
    assert [entry.input_tokens for entry in usage.request_usage_entries] == stack.prompt_tokens()
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > usage.input_tokens


@WAYS
async def test_an_output_of_a_type(stack: Stack, config: agents.RunConfig, streamed: bool) -> None:
    stack.play(turn(text='{"city": "Rome"}<|im_end|>'))
    result: Any
    if streamed:
        result = agents.Runner.run_streamed(agent(output_type=Place), "Where?", run_config=config)
        assert [event async for event in result.stream_events()]
    else:
        result = await agents.Runner.run(agent(output_type=Place), "Where?", run_config=config)
    assert result.final_output == Place(city="Rome")
    stack.check_schema(PATH)


async def test_settings_reach_the_engine(stack: Stack, config: agents.RunConfig) -> None:
    stack.play(turn(text="Yes, and more than that.<|im_end|>"))
    chosen = agents.ModelSettings(temperature=0.25, max_tokens=30, metadata={"run": "one"}, parallel_tool_calls=False)
    await agents.Runner.run(
        agent(model_settings=chosen, tools=[agents.function_tool(get_weather)]), "Well?", run_config=config
    )
    (asked,) = stack.generated()
    assert (asked["temperature"], asked["max_tokens"]) == (0.25, 30)
    assert stack.asked() == [f"POST {PATH} 200"]
