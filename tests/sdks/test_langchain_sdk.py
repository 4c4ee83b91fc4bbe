"""LangChain's ChatOpenAI as it is, in a loop of tools, and with ``use_responses_api``."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import pytest

from tests.lazy_module import LazyModule
from tests.scripted_engine.replay import turn
from tests.sdks.conftest import FIRST_THOUGHT, LAST_THOUGHT, MODEL, QUESTION, SAID, WAYS, Place, Stack, get_weather

if TYPE_CHECKING:
    import langchain.agents
    import langchain.messages
    import langchain.tools
    import langchain_core.exceptions
    import langchain_openai
else:
    langchain = LazyModule("langchain")
    langchain_core = LazyModule("langchain_core")
    langchain_openai = LazyModule("langchain_openai")

PATH = "/v1/responses"


@pytest.fixture
def llm(stack: Stack) -> langchain_openai.ChatOpenAI:
    return langchain_openai.ChatOpenAI(
        model=MODEL, base_url=f"{stack.url}/v1", api_key="unused", max_retries=0, use_responses_api=True
    )


@WAYS
@pytest.mark.parametrize(
    ("path", "thought"),
    [("/v1/chat/completions", False), (PATH, False), (PATH, True)],
    ids=["chat", "plain", "thought"],
)
def test_a_loop_of_tools(stack: Stack, streamed: bool, path: str, thought: bool) -> None:
    stack.play_loop(thought=thought)
    llm = langchain_openai.ChatOpenAI(
        model=MODEL,
        base_url=f"{stack.url}/v1",
        api_key="unused",
        max_retries=0,
        stream_usage=True,
        use_responses_api=path == PATH,
    )
    tool = langchain.tools.tool(get_weather)
    bound = llm.bind_tools([tool])
    messages: list[Any] = [langchain.messages.HumanMessage(QUESTION)]
    thoughts, numbers, used = [], [], []
    while True:
        if streamed:
            first, *others = bound.stream(messages)
            answer: Any = functools.reduce(operator.add, others, first)
        else:
            answer = bound.invoke(messages)
        used.append(answer.usage_metadata["input_tokens"])
        thoughts += [part["text"] for block in answer.content if path == PATH and block["type"] == "reasoning"
                     for part in block["content"]]  # fmt: skip
        messages.append(answer)
        numbers.append(len(answer.tool_calls))
        if not answer.tool_calls:
            break
        messages += [tool.invoke(call) for call in answer.tool_calls]
    assert (numbers, answer.text) == ([1, 2, 0], SAID)
    # Of streams LangChain reads summaries alone.
    assert thoughts == ([FIRST_THOUGHT, LAST_THOUGHT] if thought and not streamed else [])
    stack.check_loop(path)
    assert used == stack.prompt_tokens()


@WAYS
def test_an_agent(stack: Stack, llm: langchain_openai.ChatOpenAI, streamed: bool) -> None:
    stack.play_loop(thought=True)
    runner = langchain.agents.create_agent(llm, [langchain.tools.tool(get_weather)])
    question: Any = {"messages": [langchain.messages.HumanMessage(QUESTION)]}
    if streamed:
        chunks = [chunk for chunk, _ in runner.stream(question, stream_mode="messages")]
        text = "".join(str(chunk.text) for chunk in chunks if isinstance(chunk, langchain.messages.AIMessageChunk))
        assert text == f"Two more.{SAID}"
    else:
        last = runner.invoke(question)["messages"][-1]
        assert isinstance(last, langchain.messages.AIMessage)
        assert last.text == SAID
    stack.check_loop(PATH)


def test_an_output_of_a_type(stack: Stack, llm: langchain_openai.ChatOpenAI) -> None:
    stack.play(turn(text='{"city": "Rome"}<|im_end|>'))
    assert llm.with_structured_output(Place).invoke("Where?") == Place(city="Rome")
    stack.check_schema(PATH)


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
def test_a_prompt_that_is_too_long_is_known_as_that(stack: Stack, responses: bool) -> None:
    """Middlewares that shorten a history wait for this exception, which LangChain raises by words of the message."""
    llm = langchain_openai.ChatOpenAI(
        model=MODEL, base_url=f"{stack.url}/v1", api_key="unused", use_responses_api=responses
    )
    for text, wanted in (("word " * 9000, None), ("word " * 8000, 8000), ("word " * 30_000, None)):
        with pytest.raises(langchain_core.exceptions.ContextOverflowError):
            llm.invoke(text, max_tokens=wanted)
