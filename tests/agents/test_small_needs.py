"""Small needs of agents: items and blocks that are rare, templates, silence, a full context."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.generation import EngineChunk
from tests.anthropic.messages_harness import message_of
from tests.anthropic.messages_harness import post as post_message
from tests.anthropic.messages_harness import streamed as streamed_message
from tests.anthropic.messages_harness import whole as whole_message
from tests.app.harness import USER, gateway, says
from tests.app.scripted import MODEL, ByteIds, chunks, write_tokenizer
from tests.openai.responses_harness import post as post_response
from tests.openai.responses_harness import streamed as streamed_response
from tests.openai.responses_harness import whole as whole_response
from tests.openai.tools_harness import CITY, SHOWS_TOOLS, UNGUIDED

ONE_SYSTEM_TURN = SHOWS_TOOLS.replace(
    "{% for message in messages %}",
    "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "{% if message.role == 'developer' %}{{ raise_exception('Unexpected message role.') }}{% endif %}",
    1,
)
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("bytes"), SHOWS_TOOLS)


def shown(running: Any) -> str:
    """The last prompt, without the line that opens the answer."""
    text: str = running.engine.requests[-1].prompt.text
    return text.removesuffix("<|im_start|>assistant\n")


async def test_developer_items_become_one_system_turn_where_the_template_has_one(tmp_path: Path) -> None:
    """As Codex sends them: its prompt, then its rules, without instructions."""
    rules = [{"type": "input_text", "text": "skills"}, {"type": "input_text", "text": "permissions"}]
    items = [{"role": "developer", "content": "prompt"}, {"role": "developer", "content": rules}, *USER]
    async with gateway(write_tokenizer(tmp_path, ONE_SYSTEM_TURN)) as running:
        await whole_response(running, input=items)
        system = "<|im_start|>system\nprompt\n\nskills\npermissions<|im_end|>\n"
        assert shown(running) == f"{system}<|im_start|>user\nHi<|im_end|>\n"


@pytest.mark.parametrize(
    "kind",
    [
        "agent_message", "compaction_trigger", "tool_search_call", "tool_search_output", "file_search_call",
        "code_interpreter_call", "image_generation_call", "computer_call", "computer_call_output", "local_shell_call",
        "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output", "mcp_list_tools",
        "mcp_approval_request", "mcp_approval_response", "not_invented_yet",
    ],
)  # fmt: skip
async def test_an_item_of_openai_s_servers_ends_no_conversation(folder: Path, kind: str) -> None:
    item = {
        "type": kind,
        "id": "x_1",
        "call_id": "none",
        "status": "completed",
        "output": "x",
        "tools": [],
        "action": {},
    }
    async with gateway(folder) as running:
        answer = await post_response(running, input=[*USER, item])
        assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (200, f"input.{kind}"), answer.text
        assert shown(running) == "<|im_start|>user\nHi<|im_end|>\n"


async def test_reasoning_with_nulls_is_passed_over(folder: Path) -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None}
    async with gateway(folder) as running:
        await whole_response(running, input=[*USER, item, {"role": "assistant", "content": "So."}, *USER])
        assert "So." in shown(running)


async def test_a_full_context_ends_the_answer_as_a_limit_does(folder: Path) -> None:
    async with gateway(folder, says(folder, "a" * 500)) as running:
        for message in (await whole_message(running, max_tokens=128000),
                        await streamed_message(running, max_tokens=128000)):  # fmt: skip
            assert message.stop_reason == "max_tokens"
            assert message.usage.input_tokens + message.usage.output_tokens == 256
        for response in (await whole_response(running), await streamed_response(running)):
            assert response.incomplete_details is not None
            assert response.incomplete_details.reason == "max_output_tokens"


async def test_silence_before_a_message_is_told_by_comments(folder: Path) -> None:
    hold = asyncio.Event()
    script = [hold, *chunks(ByteIds(folder).of("So")), EngineChunk(final=True)]
    async with gateway(folder, lambda _: script, timeouts={"headers_s": 0.01}, served=True) as running:
        body = {"model": MODEL, "max_tokens": 5, "messages": USER, "stream": True}
        text = ""
        async with running.client.stream("POST", "/v1/messages", json=body) as answer:
            async for piece in answer.aiter_text():
                text += piece
                hold.set()
        assert text.startswith(":")
        assert message_of(text).text == "So"


CACHED = {"cache_control": {"type": "ephemeral"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
BASH = {"name": "Bash", "input_schema": CITY}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"tools": [{**BASH, **CACHED}]}, "cache_control"),
        (
            {"messages": [*USER, {"role": "assistant", "content": [{**CALL, **CACHED}]},
                          {"role": "user", "content": [{**RESULT, **CACHED}]}]},
            "cache_control",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"},
                                                       {"type": "text", "text": "Hi"}]}]},
            "content.container_upload",
        ),
    ],
)  # fmt: skip
async def test_what_is_rare_in_messages_is_left_out_and_named(folder: Path, body: dict[str, Any], named: str) -> None:
    async with gateway(folder, features=UNGUIDED, max_seq_len=4096) as running:
        answer = await post_message(running, **body)
        assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (200, named), answer.text


async def test_a_probe_of_the_root_is_answered(folder: Path) -> None:
    async with gateway(folder) as running:
        assert (await running.client.head("/")).status_code < 500
