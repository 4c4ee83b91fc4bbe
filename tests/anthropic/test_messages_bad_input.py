"""Bodies that went wrong anywhere: refused by name or served, never an error of the server, never an endless stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.anthropic.messages_harness import checked, error_of, message_of
from tests.app.scripted import MODEL
from tests.openai.responses_harness import running
from tests.openai.test_responses import bodies
from tests.openai.tools_harness import CITY, GUIDED, UNGUIDED, call_text
from tests.rings import examples

# As an agent sends them: all kinds of blocks and tools, and fields that other servers do not know.
AGENT: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 60,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: a"},
        {"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "List the files."}]},
        {"role": "system", "content": "It is Sunday."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "opaque"},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "text", "text": "So.", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"city": "x"}},
            {"type": "tool_use", "id": "call_2.x", "name": "mcp__a", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [
                {"type": "text", "text": "done"}, {"type": "image", "source": {"type": "base64", "data": "AA=="}}]},
            {"type": "tool_result", "tool_use_id": "call_2.x", "content": "done"},
            {"type": "document", "title": "T", "source": {"type": "text", "data": "d"}},
            {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    ],
    "tools": [
        {"name": "ls", "description": "Lists.", "input_schema": CITY},
        {"type": "custom", "name": "mcp__a", "strict": True, "input_schema": CITY, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "thinking": {"type": "enabled", "budget_tokens": 31999, "display": "omitted"},
    "output_config": {"effort": "high"},
    "stop_sequences": ["never"],
    "temperature": 1.0,
    "top_p": 0.9,
    "top_k": 40,
    "metadata": {"user_id": "u"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "betas": ["nobody-knows"],
}  # fmt: skip
OF_CHAT = (
    "response_format", ".function", "max_completion_tokens", "tool_call", "reasoning_effort", "continue_final", "[",
    "parallel_tool_calls", "'stop'",
)  # fmt: skip


@pytest.mark.parametrize("features", [UNGUIDED, GUIDED], ids=["unguided", "guided"])
def test_a_body_that_went_wrong(folder: Path, features: Any) -> None:
    with running(folder, features) as (engine, asked):
        engine.say("Sure. " + call_text("ls", '{"city": "x"}'), [3])

        @settings(max_examples=examples(180, long=1500))
        @given(body=bodies(AGENT), stream=st.booleans(), path=st.sampled_from(["", "?beta=true", "/count_tokens"]))
        def check(body: dict[str, Any], stream: bool, path: str) -> None:
            body["stream"] = stream
            answer = engine.loop.run_until_complete(asked.client.post(f"/v1/messages{path}", json=body))
            if answer.status_code == 404:
                error_of(answer, 404, "not_found_error")
            elif answer.status_code != 200:
                message = error_of(answer, 400, "invalid_request_error")
                assert [word for word in OF_CHAT if word in message] == []
            elif path == "/count_tokens":
                assert answer.json()["input_tokens"] > 0
            else:
                message_of(answer.text) if stream else checked(answer.json())

        check()
