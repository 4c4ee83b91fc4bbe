"""opencode: `opencode run` with the settings of its page, against the gateway on the real Triton."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clients.programs.desk import AFTER, BEFORE, NOTES, Desk, call, play_looks_and_an_edit
from tests.clients.programs.pages import MODEL, blocks, exports, named
from tests.clients.programs.process import Outcome
from tests.scripted_engine.replay import ScriptedServer


@dataclass(frozen=True)
class Turn:
    """What one request of an agent brings back, whatever the API.

    Attributes:
        calls: name and id of each call, in their order.
        results: what came of each, by the call's id.
    """

    calls: list[tuple[str, str]]
    results: dict[str, str]


def of_chat(body: dict[str, Any]) -> Turn:
    made = [entry for message in body["messages"] for entry in message.get("tool_calls", [])]
    results = {entry["tool_call_id"]: entry["content"] for entry in body["messages"] if entry["role"] == "tool"}
    return Turn([(entry["function"]["name"], entry["id"]) for entry in made], results)


def of_responses(body: dict[str, Any]) -> Turn:
    made = [item for item in body["input"] if item.get("type") == "function_call"]
    results = {item["call_id"]: item["output"] for item in body["input"] if item.get("type") == "function_call_output"}
    return Turn([(item["name"], item["call_id"]) for item in made], results)


def of_messages(body: dict[str, Any]) -> Turn:
    parts = [block for message in body["messages"] for block in message["content"]]
    made = [block for block in parts if block["type"] == "tool_use"]
    results = {block["tool_use_id"]: json.dumps(block["content"]) for block in parts if block["type"] == "tool_result"}
    return Turn([(block["name"], block["id"]) for block in made], results)


def opencode(desk: Desk, prompt: str, package: str, *, sealed: bool = False) -> Outcome:
    """Run it on a prompt, with an SDK's package in place of the page's, and the page's options for sealed reasoning."""
    settings, options = (json.loads(block) for block in blocks("opencode", "json", desk.recorder.url))
    settings["provider"]["gateway"]["npm"] = package
    if sealed:
        settings["provider"]["gateway"]["models"][MODEL] |= options["models"][MODEL]
    (desk.work / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
    (shell,) = blocks("opencode", "sh", desk.recorder.url)
    # With a title it asks for none, a request beside the first turn.
    return desk.run("opencode", "run", "--title", "Notes", prompt, **exports(shell))


def play_edit(desk: Desk, triton: ScriptedServer) -> None:
    """Have the model look twice at once, and edit."""
    notes = str(desk.work / NOTES)
    looks = [call("bash", command="ls", description="Lists files"), call("read", filePath=notes)]
    edit = call("edit", filePath=notes, oldString=BEFORE.strip(), newString=AFTER.strip())
    play_looks_and_an_edit(triton, looks, edit, "Edit applied")


PROVIDERS = [
    pytest.param("@ai-sdk/openai-compatible", "/v1/chat/completions", of_chat, id="chat"),
    pytest.param("@ai-sdk/openai", "/v1/responses", of_responses, id="responses", marks=pytest.mark.long),
    pytest.param("@ai-sdk/anthropic", "/v1/messages", of_messages, id="messages", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("package", "path", "turn_of"), PROVIDERS)
def test_calls_at_once_and_an_edit(
    desk: Desk, scripted_triton: ScriptedServer, package: str, path: str, turn_of: Callable[[dict[str, Any]], Turn]
) -> None:
    play_edit(desk, scripted_triton)
    ended = opencode(desk, "Make it Rome.", package)
    assert ended.code == 0, ended.err
    assert ended.out.endswith("It is Rome now.\n")
    assert desk.notes == AFTER
    posts = desk.recorder.exchanges
    assert [(post.method, post.path, post.status) for post in posts] == [("POST", path, 200)] * 3
    assert {name for post in posts for name in post.left_out} == (
        set(named("opencode")) if turn_of is of_messages else set()
    )
    second, third = turn_of(posts[1].body), turn_of(posts[2].body)
    (looked, looked_id), (read, read_id) = second.calls
    assert (looked, read) == ("bash", "read")
    assert NOTES in second.results[looked_id]
    assert BEFORE.strip() in second.results[read_id]
    edited, edited_id = third.calls[2]
    assert edited == "edit"
    assert "Edit applied" in third.results[edited_id]
    shown = scripted_triton.requests()
    assert len(shown) == 3
    # Its package for Responses keeps reasoning back: `store` is false, and there is no sealed form of it.
    assert ("<think>First a look.</think>" in shown[2]["prompt"]) == (turn_of is not of_responses)


@pytest.mark.long
def test_sealed_reasoning_by_responses(sealing_desk: Desk, scripted_triton: ScriptedServer) -> None:
    play_edit(sealing_desk, scripted_triton)
    ended = opencode(sealing_desk, "Make it Rome.", "@ai-sdk/openai", sealed=True)
    assert ended.code == 0, ended.err
    assert sealing_desk.notes == AFTER
    posts = sealing_desk.recorder.exchanges
    assert [(post.path, post.status, post.left_out) for post in posts] == [("/v1/responses", 200, [])] * 3
    sealed = [item["encrypted_content"] for item in posts[2].body["input"] if item.get("type") == "reasoning"]
    assert [text[:8] for text in sealed] == ["sealed1."] * 2
    assert "<think>First a look.</think>" in scripted_triton.requests()[2]["prompt"]
