"""The Responses API as clients use it: the SDK and LangChain, on the running stack and on recorded answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from openai import BadRequestError, OpenAI, pydantic_function_tool
from openai.types.responses import Response, ResponseFunctionToolCall
from pydantic import BaseModel

from tests.clients.conftest import MODEL
from tests.openai.responses_harness import last_of
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

QWEN = Path(__file__).parents[2] / "chat_templates" / "hermes.jinja"
AGENT = "agent"
QUESTION = "Is it warmer than in Paris and Oslo, the weather in Rome?"
DEGREES = {"Rome": 22, "Paris": 15, "Oslo": -3}
SAID = "Rome is the warmest: 22 °C."
PATCH = "*** Begin Patch\n+é\n*** End Patch"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "name": "get_weather", "description": "Temperature in a city.", "parameters": CITY},
    {"type": "web_search"},
]


class Weather(BaseModel):
    """Temperature in a city."""

    city: str


def called(city: str) -> str:
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


@pytest.fixture(scope="module", params=["tokens", "ensemble"])
def agent(
    request: pytest.FixtureRequest, scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("responses") / "log",
        GATEWAY_MODEL=AGENT,
        GATEWAY_TRITON_URL=scripted_triton.grpc_url,
        GATEWAY_TOKENIZER=str(scripted_triton.model_dir),
        GATEWAY_TEMPLATE=str(QWEN),
        GATEWAY_FAMILY="qwen3",  # whose models reason
        GATEWAY_MAX_SEQ_LEN="8192",
        GATEWAY_PATH=request.param,
    ) as process:
        yield process


@pytest.fixture
def conversation(scripted_triton: ScriptedServer) -> ScriptedServer:
    """What the model says, turn by turn."""
    scripted_triton.play(
        turn("weather in Rome", text=f"<think>\nRome first.\n</think>\n\n{called('Rome')}<|im_end|>"),
        turn("22 degrees", text=f"Two more.\n{called('Paris')}\n{called('Oslo')}<|im_end|>"),
        turn("15 degrees(.|\n)*-3 degrees", text=f"{SAID}<|im_end|>"),
        chunk=[1, 7],
    )
    return scripted_triton


def checked(asked: list[dict[str, Any]]) -> None:
    """Every turn showed the tools, and the last one all that was called and answered."""
    assert len(asked) == 3
    assert all('"name": "get_weather"' in request["prompt"] for request in asked)
    assert not any("web_search" in request["prompt"] for request in asked)
    assert asked[2]["prompt"].count("<tool_response>") == 3
    assert f"Two more.\n{called('Paris')}\n{called('Oslo')}" in asked[2]["prompt"]


def run(arguments: str) -> str:
    return f"{DEGREES[json.loads(arguments)['city']]} degrees"


@pytest.fixture
def sdk(agent: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{agent.url}/v1", api_key="unused", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        yield client


def streamed(sdk: OpenAI, **body: Any) -> Response:
    """The final response of the SDK's helper, which accumulates the events by itself."""
    with sdk.responses.stream(**body) as stream:
        texts, arguments = "", ""
        for event in stream:
            if event.type == "response.output_text.delta":
                texts += event.delta
                assert event.snapshot.endswith(event.delta)
            elif event.type == "response.function_call_arguments.delta":
                arguments += event.delta
                assert event.snapshot.endswith(event.delta)
        response = stream.get_final_response()
    assert response.output_text == texts
    assert "".join(item.arguments for item in response.output if item.type == "function_call") == arguments
    return response


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_a_loop_of_tools(sdk: OpenAI, conversation: ScriptedServer, way: str) -> None:
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    kinds = []
    while True:
        body: dict[str, Any] = {
            "model": AGENT,
            "input": items,
            "tools": TOOLS,
            "include": ["reasoning.encrypted_content"],
        }
        response = sdk.responses.create(**body) if way == "whole" else streamed(sdk, **body)
        kinds.append([item.type for item in response.output])
        items += [item.to_dict() for item in response.output]  # as agents do: verbatim
        calls = [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]
        if not calls:
            break
        items += [
            {"type": "function_call_output", "call_id": call.call_id, "output": run(call.arguments)} for call in calls
        ]
    assert kinds == [["reasoning", "function_call"], ["message", "function_call", "function_call"], ["message"]]
    assert (response.output_text, response.status) == (SAID, "completed")
    checked(conversation.requests())


@pytest.mark.parametrize("stream", [False, True])
def test_langchain(agent: GatewayProcess, conversation: ScriptedServer, stream: bool) -> None:
    @langchain_tool
    def get_weather(city: str) -> str:
        """Temperature in a city."""
        return f"{DEGREES[city]} degrees"

    model = ChatOpenAI(model=AGENT, base_url=f"{agent.url}/v1", api_key="unused", max_retries=0, use_responses_api=True)  # type: ignore[call-arg, arg-type]
    runner = create_agent(model, [get_weather])
    asked: Any = {"messages": [HumanMessage(QUESTION)]}
    if stream:
        texts = ""
        for chunk, _ in runner.stream(asked, stream_mode="messages"):
            assert isinstance(chunk, AIMessageChunk) or chunk.type == "tool"
            if isinstance(chunk, AIMessageChunk):
                texts += str(chunk.text)
        assert texts == f"Two more.{SAID}"
    else:
        last = runner.invoke(asked)["messages"][-1]
        assert isinstance(last, AIMessage)
        assert last.text == SAID
        assert last.usage_metadata is not None
        assert last.usage_metadata["output_tokens"] > 0
    checked(conversation.requests())


def test_a_custom_tool(sdk: OpenAI, scripted_triton: ScriptedServer) -> None:
    call = f'<tool_call>\n{{"name": "apply_patch", "arguments": {json.dumps({"input": PATCH})}}}\n</tool_call>'
    scripted_triton.play(turn(text=f"{call}<|im_end|>"), chunk=3)
    tools: list[Any] = [{"type": "custom", "name": "apply_patch", "description": "Edits."}]
    whole = sdk.responses.create(model=AGENT, input="Edit it.", tools=tools)
    (item,) = whole.output
    assert item.type == "custom_tool_call"
    assert item.input == PATCH
    response = streamed(sdk, model=AGENT, input="Edit it.", tools=tools)
    assert [item.input for item in response.output if item.type == "custom_tool_call"] == [PATCH]


def test_parsing(sdk: OpenAI, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text='{"city": "Rome"}<|im_end|>'), chunk=2)
    response = sdk.responses.parse(model=AGENT, input="Where?", text_format=Weather)
    assert response.output_parsed == Weather(city="Rome")
    asked = scripted_triton.requests()[-1]
    assert asked["guide"] is not None
    with sdk.responses.stream(model=AGENT, input="Where?", text_format=Weather) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_parsed == Weather(city="Rome")
    call = '<tool_call>\n{"name": "Weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
    scripted_triton.play(turn(text=call), chunk=2)
    tools: list[Any] = [pydantic_function_tool(Weather)]  # which the helper turns into Responses' own form
    made = sdk.responses.parse(model=AGENT, input="Where?", tools=tools, tool_choice="required")
    (call,) = made.output
    assert call.type == "function_call"
    assert call.parsed_arguments == Weather(city="Rome")


def test_text_of_a_model(client: OpenAI) -> None:
    body: dict[str, Any] = {"model": MODEL, "input": "What is the capital of France?", "temperature": 0}
    whole = client.responses.create(**body)
    assert whole.output_text == "The capital of France is Paris."
    assert streamed(client, **body).output_text == whole.output_text
    raw = client.responses.with_raw_response.create(**body, stream=True)
    assert last_of(raw.http_response.read().decode()).output_text == whole.output_text
    assert whole.usage is not None
    counted = client.responses.input_tokens.count(model=MODEL, input=body["input"])
    assert counted.input_tokens == whole.usage.input_tokens
    messages: list[Any] = [{"role": "user", "content": body["input"]}]
    chat = client.chat.completions.create(model=MODEL, temperature=0, messages=messages)
    assert chat.choices[0].message.content == whole.output_text
    assert chat.usage is not None
    counts = (chat.usage.prompt_tokens, chat.usage.completion_tokens)
    assert counts == (whole.usage.input_tokens, whole.usage.output_tokens)
    cut = client.responses.create(**body, max_output_tokens=2)
    assert (cut.status, cut.output_text) == ("incomplete", "The capital")
    after = client.responses.create(**body, previous_response_id=whole.id)
    assert after.usage is not None
    assert after.usage.input_tokens > whole.usage.total_tokens
    with pytest.raises(BadRequestError) as rejected:
        client.responses.create(**body, previous_response_id="resp_1")
    assert rejected.value.code == "previous_response_not_found"
