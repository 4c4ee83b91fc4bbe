"""Requests that agents sent: each is answered whole and streamed, with the same items, and shown to the model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.bodies import NAMES, body, is_anthropic
from tests.anthropic.messages_harness import checked as checked_message
from tests.anthropic.messages_harness import message_of, message_types
from tests.app.harness import Gateway
from tests.app.scripted import MODEL, write_tokenizer
from tests.openai.responses_harness import Engine, checked, last_of, running
from tests.openai.tools_harness import GUIDED, SHOWS_TOOLS, call_text

SEALED = "include.reasoning.encrypted_content"
CODEX = {SEALED, "tools.web_search"}
CATALOG = CODEX | {"tools[3].format", "reasoning.effort", "text.verbosity"}
CLAUDE = {
    "context_management", "system.x-anthropic-billing-header", "cache_control", "tools.defer_loading",
    "output_config.effort",
}  # fmt: skip
# What `x-ignored-parameters` names where it is not what most requests of the program have it name.
NAMED: dict[str, set[str]] = {
    "ai-sdk-turn2-reasoning": {"input.item_reference"},
    "claude-bare-turn1": CLAUDE - {"tools.defer_loading"},
    "claude-known-model-turn1": CLAUDE - {"output_config.effort"},
    "claude-no-betas-turn1": {"output_config.effort"},
    "claude-turn2-image": CLAUDE | {"content.image"},
    "codex-catalog-turn1": CATALOG,
    "codex-catalog-turn2-custom-ok": CATALOG,
    "codex-code-mode-turn1": CATALOG - {"tools[3].format"} | {"tools[0].format", "tools[5].format"},
    "codex-compaction": {SEALED},
    "codex-effort-detailed": CODEX | {"reasoning.summary", "reasoning.effort"},
    "codex-minimal-turn1": {SEALED},
    "codex-turn2-image-output": CODEX | {"input.input_image"},
    "codex-turn2-reasoning-encrypted": CODEX | {"input.reasoning.encrypted_content"},
}
OF_A_PROGRAM = {"codex": CODEX, "claude": CLAUDE}
COUNTED = "claude-count-tokens"
# It names a stored response that is not there.
CONTINUES = "langchain-py-previous-response-id"
Started = tuple[Engine, Gateway]
ROOM = 40_000


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder: Path = write_tokenizer(tmp_path_factory.mktemp("agents"), SHOWS_TOOLS + "{# <think> #}")
    with running(folder, dataclasses.replace(GUIDED, max_seq_len=ROOM), ROOM) as made:
        yield made


def callables(tools: list[dict[str, Any]]) -> list[tuple[str, str | None, str, str]]:
    """One tool of each kind: its name, its namespace, what the model calls it, and the argument that it gives."""
    found: dict[str, tuple[str, str | None, str, str]] = {}
    for tool in tools:
        kind = tool.get("type", "function")
        if kind == "namespace":
            inner = tool["tools"][0]["name"]
            found.setdefault(kind, (inner, tool["name"], f"{tool['name']}__{inner}", "x"))
        elif kind in {"function", "custom"}:
            key = tool["parameters"]["required"][0] if tool.get("strict") else "input" if kind == "custom" else "x"
            found.setdefault(kind, (tool["name"], None, tool["name"], key))
    return list(found.values())


def said(sent: dict[str, Any]) -> str:
    """Reasoning, text, and a call of each kind of tool; only JSON where the client demands it."""
    if "format" in sent.get("text", {}):
        return '{"answer": "é"}'
    calls = [call_text(name, json.dumps({key: "é"})) for *_, name, key in callables(sent.get("tools", []))]
    return "\n".join(["<think>\nHm.\n</think>\n\nSo.", *calls])


def of_response(item: dict[str, Any]) -> tuple[Any, ...]:
    text = "".join(part["text"] for part in item.get("content") or [])
    return (item["type"], text, item.get("name"), item.get("namespace"), item.get("arguments", item.get("input")))


def of_message(message: message_types.Message) -> list[dict[str, Any]]:
    return [block.model_dump(exclude={"id", "signature"}) for block in message.content]


def check_shown(sent: dict[str, Any], prompt: str) -> None:
    """The model sees texts, calls, results, and every tool that it can call."""
    entries = sent.get("messages") or sent["input"]
    if isinstance(entries, str):
        entries = [{"role": "user", "content": entries}]
    for entry in entries:
        content = entry.get("content") or []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [entry, *content]
        for part in parts:
            kind = part.get("type", "message")
            if kind in {"text", "input_text", "output_text"}:
                assert part["text"] in prompt
            elif kind in {"function_call", "custom_tool_call", "tool_use"}:
                assert f"<call>{part.get('call_id') or part['id']} " in prompt
            elif kind in {"function_call_output", "custom_tool_call_output", "tool_result"}:
                assert f"<result {part.get('call_id') or part['tool_use_id']} " in prompt
    for *_, shown, _ in callables(sent.get("tools", [])):
        assert f'"name": "{shown}"' in prompt


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {COUNTED, CONTINUES}])
def test_it_is_answered(started: Started, name: str) -> None:
    engine, gateway = started
    sent = body(name)
    engine.say(said(sent), [1, 5])
    path = "/v1/messages?beta=true" if is_anthropic(name) else "/v1/responses"
    texts = []
    for stream in (False, True):
        answer = engine.loop.run_until_complete(
            gateway.client.post(path, json={**sent, "model": MODEL, "stream": stream})
        )
        assert answer.status_code == 200, answer.text
        named = {each for each in answer.headers.get("x-ignored-parameters", "").split(", ") if each}
        assert named == NAMED.get(name, OF_A_PROGRAM.get(name.partition("-")[0], set()))
        texts.append(answer.text)
        check_shown(sent, gateway.engine.requests[-1].prompt.text)
    if is_anthropic(name):
        message, streamed = checked_message(json.loads(texts[0])), message_of(texts[1])
        assert of_message(message) == of_message(streamed)
        assert message.usage == streamed.usage
        assert [call.name for call in message.calls] == [each[0] for each in callables(sent.get("tools", []))]
        assert message.stop_reason == ("tool_use" if sent.get("tools") else "end_turn")
        return
    response, ended = json.loads(texts[0]), last_of(texts[1]).to_dict()
    checked(response)
    items = [of_response(item) for item in response["output"]]
    assert items == [of_response(item) for item in ended["output"]]
    assert response["usage"] == ended["usage"]
    expected = [] if "format" in sent.get("text", {}) else [each[:2] for each in callables(sent.get("tools", []))]
    assert [(name, space) for kind, _, name, space, _ in items if kind.endswith("_call")] == expected
    assert response["tools"] == sent.get("tools", [])


def test_tokens_are_counted(started: Started) -> None:
    engine, gateway = started
    post = gateway.client.post
    sent = body(COUNTED) | {"model": MODEL}
    engine.say("So.", [1])
    counted = engine.loop.run_until_complete(post("/v1/messages/count_tokens?beta=true", json=sent))
    message = engine.loop.run_until_complete(post("/v1/messages?beta=true", json={**sent, "max_tokens": 5}))
    assert counted.json() == {"input_tokens": message.json()["usage"]["input_tokens"]}


def test_a_response_that_is_not_there_is_named(started: Started) -> None:
    engine, gateway = started
    sent = body(CONTINUES) | {"model": MODEL}
    answer = engine.loop.run_until_complete(gateway.client.post("/v1/responses", json=sent))
    assert answer.status_code in {400, 404}
    assert answer.json()["error"]["code"] == "previous_response_not_found"
