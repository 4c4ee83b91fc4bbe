"""Anthropic's Messages end to end, on recorded answers: an agent's loop of two steps, streamed and whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.anthropic.messages_harness import VERSION, Message, ToolUse, error_of, message_of
from tests.clients.test_reasoning import TEMPLATE
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

MODEL = "agent"
THOUGHT = "I must look."
CALLS = "".join(
    f'<tool_call>\n{{"name": "Bash", "arguments": {{"command": "{command}"}}}}\n</tool_call>\n'
    for command in ("ls", "pwd")
)
TOOL = {
    "name": "Bash",
    "description": "Runs a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
LEFT_OUT = (
    "system.x-anthropic-billing-header, cache_control, tools.web_search_20250305, "
    "anthropic-beta.claude-code-20250219, anthropic-beta.nobody-knows"
)
BODY: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ],
    "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}],
    "thinking": {"type": "enabled", "budget_tokens": 31999},
}


@pytest.fixture(scope="module", params=["tokens", "ensemble"])
def agent(
    request: pytest.FixtureRequest, scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("agent")
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    with GatewayProcess(
        folder / "log",
        GATEWAY_MODEL=MODEL,
        GATEWAY_TRITON_URL=scripted_triton.grpc_url,
        GATEWAY_TOKENIZER=str(scripted_triton.model_dir),
        GATEWAY_TEMPLATE=str(folder / "template.jinja"),
        GATEWAY_MAX_SEQ_LEN="8192",
        GATEWAY_PATH=request.param,
        GATEWAY_API_KEYS="key",
    ) as process:
        yield process


def ask(agent: GatewayProcess, messages: list[dict[str, Any]], **more: Any) -> httpx.Response:
    headers = {**VERSION, "anthropic-beta": "claude-code-20250219,nobody-knows", "x-api-key": "key"}
    url = f"{agent.url}/v1/messages?beta=true"
    return httpx.post(url, headers=headers, json={**BODY, "messages": messages, **more}, timeout=60)


def said(agent: GatewayProcess, answer: httpx.Response, *, stream: bool) -> Message:
    assert answer.status_code == 200, answer.text
    facts = httpx.get(f"{agent.url}/v1/models/{MODEL}", headers={"authorization": "Bearer key"}).json()
    bounded = facts["gateway"]["path"] == "tokens"  # text cannot be continued exactly
    assert answer.headers["x-ignored-parameters"] == LEFT_OUT + ("" if bounded else ", thinking.budget_tokens")
    return message_of(answer.text) if stream else Message.model_validate(answer.json())


@pytest.mark.parametrize("chunk", [1, 5])
@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_s_loop_of_two_steps(
    agent: GatewayProcess, scripted_triton: ScriptedServer, chunk: int, stream: bool
) -> None:
    scripted_triton.play(
        turn("List the files", text=f"<think>\n{THOUGHT}\n</think>\n\n{CALLS}<|im_end|>"),
        turn("README.md", text="There is a README.<|im_end|>"),
        chunk=chunk,
    )
    question = [{"role": "user", "content": "List the files"}, {"role": "system", "content": "Today is Sunday."}]
    first = said(agent, ask(agent, question, stream=stream), stream=stream)
    assert (first.thinking, first.stop_reason) == (THOUGHT, "tool_use")
    assert [call.input for call in first.calls] == [{"command": "ls"}, {"command": "pwd"}]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": text}
               for call, text in zip(first.calls, ("README.md", "/tmp"), strict=True)]  # fmt: skip
    history = [*question, {"role": "assistant", "content": [block.model_dump() for block in first.content]},
               {"role": "user", "content": results}]  # fmt: skip
    second = said(agent, ask(agent, history, stream=stream), stream=stream)
    assert (second.text, second.stop_reason) == ("There is a README.", "end_turn")
    asked = scripted_triton.requests()
    assert len(asked) == 2
    assert asked[1]["prompt"].startswith(asked[0]["prompt"].removesuffix("<|im_start|>assistant\n"))
    assert asked[1]["prompt"].index("Today is Sunday") < asked[1]["prompt"].index("README.md")
    assert not any(isinstance(block, ToolUse) for block in second.content)


def test_tokens_are_counted_and_errors_have_anthropic_s_shape(
    agent: GatewayProcess, scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(turn(text="So.<|im_end|>"))
    body = {**BODY, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {**VERSION, "authorization": "Bearer key"}
    url = f"{agent.url}/v1/messages"
    counted = httpx.post(f"{url}/count_tokens", headers=headers, json=body, timeout=60).json()["input_tokens"]
    usage = Message.model_validate(httpx.post(url, headers=headers, json=body, timeout=60).json()).usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted > 50
    error_of(httpx.post(url, json=body, timeout=60), 401, "authentication_error")
    long = {**body, "messages": [{"role": "user", "content": "word " * 9000}]}
    message = error_of(httpx.post(url, headers=headers, json=long, timeout=60), 400, "invalid_request_error")
    assert message.startswith("prompt is too long: ")
    assert message.endswith(" tokens > 8191 maximum")
