"""LangChain's ChatOpenAI against the running stack: invoke, stream, batch, async."""

from __future__ import annotations

import pytest
from langchain_openai import ChatOpenAI

from tests.clients.conftest import MODEL
from tests.stack import GatewayProcess

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."


@pytest.fixture
def llm(gateway: GatewayProcess) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL, base_url=f"{gateway.url}/v1", api_key="unused", temperature=0, max_retries=0, stream_usage=True
    )


def test_invoke_gives_text_usage_and_finish_reason(llm: ChatOpenAI) -> None:
    message = llm.invoke(QUESTION)
    assert message.content == ANSWER
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] == 7
    assert message.response_metadata["finish_reason"] == "stop"


def test_stream_adds_up(llm: ChatOpenAI) -> None:
    chunks = list(llm.stream(QUESTION))
    assert "".join(str(chunk.content) for chunk in chunks) == ANSWER
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    assert total.usage_metadata is not None
    assert total.usage_metadata["output_tokens"] == 7


def test_batch(llm: ChatOpenAI) -> None:
    answers = llm.batch([f"What is the capital of {country}?" for country in ("France", "England", "Japan")])
    assert [
        city in str(answer.content) for city, answer in zip(("Paris", "London", "Tokyo"), answers, strict=True)
    ] == [True] * 3


async def test_async(llm: ChatOpenAI) -> None:
    assert (await llm.ainvoke(QUESTION)).content == ANSWER
    assert "".join([str(chunk.content) async for chunk in llm.astream(QUESTION)]) == ANSWER
