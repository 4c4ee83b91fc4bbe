"""Anthropic's SDK for Python: messages, their streams, its runner of tools, counting, models."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.lazy_module import LazyModule
from tests.scripted_engine.replay import turn
from tests.sdks.conftest import BOTH, FIRST_THOUGHT, LAST_THOUGHT, MODEL, QUESTION, SAID, WAYS, Place, Stack, degrees_in

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = LazyModule("anthropic")

PATH = "/v1/messages"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [{"name": "get_weather", "description": "Temperature in a city.", "input_schema": CITY}]

WITHOUT_THREAD = [f"POST {PATH} 400"]  # asked to keep the conversation, the gateway refuses; the runner then sends it


@pytest.fixture
def sdk(stack: Stack) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=stack.url, api_key="unused", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        yield client


@pytest.fixture
async def async_sdk(stack: Stack) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=stack.url, api_key="unused", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        yield client


def streamed_message(sdk: anthropic.Anthropic, **body: Any) -> Any:
    """The message that the SDK makes of a stream, whose helper events must tell the same."""
    told = {"text": "", "thinking": "", "input_json": ""}
    with sdk.messages.stream(**body) as stream:
        for event in stream:
            if event.type == "text":
                told["text"] += event.text
                assert event.snapshot.endswith(event.text)
            elif event.type == "thinking":
                told["thinking"] += event.thinking
            elif event.type == "input_json":
                told["input_json"] += event.partial_json
        message = stream.get_final_message()
    assert told["text"] == "".join(block.text for block in message.content if block.type == "text")
    assert told["thinking"] == "".join(block.thinking for block in message.content if block.type == "thinking")
    assert bool(told["input_json"]) == any(block.type == "tool_use" for block in message.content)
    return message


@BOTH
@WAYS
def test_a_loop_of_tools(stack: Stack, sdk: anthropic.Anthropic, streamed: bool, thought: bool) -> None:
    stack.play_loop(thought=thought)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    kinds = []
    while True:
        body: dict[str, Any] = {"model": MODEL, "max_tokens": 1000, "messages": messages, "tools": TOOLS}
        message = streamed_message(sdk, **body) if streamed else sdk.messages.create(**body)
        kinds.append([block.type for block in message.content])
        messages.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            break
        assert message.stop_reason == "tool_use"
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": degrees_in(**call.input)}
                   for call in calls]  # fmt: skip
        messages.append({"role": "user", "content": results})
    begun = ["thinking"] if thought else []
    assert kinds == [[*begun, "tool_use"], ["text", "tool_use", "tool_use"], [*begun, "text"]]
    assert (message.content[-1].text, message.stop_reason) == (SAID, "end_turn")
    stack.check_loop(PATH)
    assert stack.shows_thought() == [False, thought, thought]


@BOTH
@WAYS
def test_the_runner_of_tools(stack: Stack, sdk: anthropic.Anthropic, streamed: bool, thought: bool) -> None:
    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Temperature in a city."""
        return degrees_in(city)

    stack.play_loop(thought=thought)
    body: dict[str, Any] = {
        "model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": QUESTION}],
        "tools": [get_weather], "stream": streamed, "betas": ["interleaved-thinking-2025-05-14"],
    }  # fmt: skip
    runner = sdk.beta.messages.tool_runner(**body)
    answers = [each.get_final_message() if streamed else each for each in runner]
    assert [message.stop_reason for message in answers] == ["tool_use", "tool_use", "end_turn"]
    assert answers[-1].content[-1].text == SAID
    thoughts = [block.thinking for message in answers for block in message.content if block.type == "thinking"]
    assert thoughts == ([FIRST_THOUGHT, LAST_THOUGHT] if thought else [])
    stack.check_loop(PATH, before=WITHOUT_THREAD)


async def test_the_asynchronous_runner(stack: Stack, async_sdk: anthropic.AsyncAnthropic) -> None:
    @anthropic.beta_async_tool
    async def get_weather(city: str) -> str:
        """Temperature in a city."""
        return degrees_in(city)

    stack.play_loop(thought=True)
    question: Any = [{"role": "user", "content": QUESTION}]
    runner = async_sdk.beta.messages.tool_runner(
        model=MODEL, max_tokens=1000, messages=question, tools=[get_weather], stream=True
    )
    texts = ""
    async for stream in runner:
        async for text in stream.text_stream:
            texts += text
    assert texts == f"Two more.{SAID}"
    stack.check_loop(PATH, before=WITHOUT_THREAD)


@WAYS
def test_an_output_of_a_type(stack: Stack, sdk: anthropic.Anthropic, streamed: bool) -> None:
    stack.play(turn(text='{"city": "Rome"}<|im_end|>'))
    question: Any = [{"role": "user", "content": "Where?"}]
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 50, "messages": question, "output_format": Place}
    if streamed:
        with sdk.messages.stream(**body) as stream:
            for _ in stream:
                pass
            message = stream.get_final_message()
    else:
        message = sdk.messages.parse(**body)
    assert message.parsed_output == Place(city="Rome")
    stack.check_schema(PATH)


def test_raw_events(stack: Stack, sdk: anthropic.Anthropic) -> None:
    stack.play(turn(text="Yes.<|im_end|>"))
    question: Any = [{"role": "user", "content": "Well?"}]
    with sdk.messages.create(model=MODEL, max_tokens=9, messages=question, stream=True) as events:
        kinds = [event.type for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]


def test_counting(stack: Stack, sdk: anthropic.Anthropic) -> None:
    stack.play(turn(text="Yes.<|im_end|>"))
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "tools": TOOLS}
    counted = sdk.messages.count_tokens(**body).input_tokens
    assert sdk.messages.create(max_tokens=9, **body).usage.input_tokens == counted
    assert sdk.beta.messages.count_tokens(**body).input_tokens == counted
    assert len(stack.generated()[0]["prompt_ids"]) == counted


def test_models(stack: Stack, sdk: anthropic.Anthropic) -> None:
    stack.play()
    (model,) = sdk.models.list()
    assert (model.id, model.type) == (MODEL, "model")
    assert sdk.models.retrieve(MODEL) == model
    (listed,) = sdk.beta.models.list()
    assert listed.id == MODEL
    with pytest.raises(anthropic.NotFoundError) as missing:
        sdk.models.retrieve("nobody")
    assert missing.value.type == "not_found_error"


def test_errors(stack: Stack, sdk: anthropic.Anthropic) -> None:
    stack.play(turn(text="Yes.<|im_end|>"))
    question: Any = [{"role": "user", "content": "Well?"}]
    with pytest.raises(anthropic.NotFoundError) as missing:
        sdk.messages.create(model="nobody", max_tokens=9, messages=question)
    assert missing.value.request_id
    with pytest.raises(anthropic.BadRequestError) as rejected:
        sdk.messages.create(model=MODEL, max_tokens=0, messages=question)
    assert rejected.value.type == "invalid_request_error"
    long: Any = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 8191 maximum"):
        sdk.messages.create(model=MODEL, max_tokens=9, messages=long)


def test_a_stream_that_is_left(stack: Stack, sdk: anthropic.Anthropic) -> None:
    stack.play(turn(text="Yes.", hold=True))
    question: Any = [{"role": "user", "content": "Well?"}]
    with contextlib.closing(sdk.messages.create(model=MODEL, max_tokens=99, messages=question, stream=True)) as events:
        assert any(event.type == "content_block_delta" for event in events)
    stack.play(turn(text="Yes.<|im_end|>"))
    assert sdk.messages.create(model=MODEL, max_tokens=9, messages=question).content[0].text == "Yes."  # type: ignore[union-attr]
