"""opencode: `opencode run` with the settings of its page, against the gateway on the real Triton."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clients.programs.desk import AFTER, BEFORE, NOTES, Desk, call, thought
from tests.clients.programs.pages import blocks, exports, page
from tests.clients.programs.process import Outcome
from tests.clients.programs.recorder import Exchange
from tests.scripted_engine.replay import ScriptedServer, turn


def opencode(desk: Desk, prompt: str, package: str | None = None) -> Outcome:
    """Run it on a prompt; ``package``: the SDK's package in place of the page's."""
    (settings,) = (json.loads(block) for block in blocks("opencode", "json", desk.recorder.url))
    if package is not None:
        settings["provider"]["gateway"]["npm"] = package
    (desk.work / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
    (shell,) = blocks("opencode", "sh", desk.recorder.url)
    # With a title it asks for none, a request beside the first turn.
    return desk.run("opencode", "run", "--title", "Notes", prompt, **exports(shell))


def asked(desk: Desk, path: str, turns: int) -> list[Exchange]:
    """The requests: so many to one path, all of them answered."""
    posts = desk.recorder.exchanges
    assert [(post.method, post.path, post.status) for post in posts] == [("POST", path, 200)] * turns
    return posts


def plays(desk: Desk, scripted_triton: ScriptedServer) -> None:
    """Two looks at once, an edit, an answer, with reasoning."""
    notes = str(desk.work / NOTES)
    looks = "\n".join([call("bash", command="ls", description="Lists files"), call("read", filePath=notes)])
    edit = call("edit", filePath=notes, oldString=BEFORE.strip(), newString=AFTER.strip())
    scripted_triton.play(
        turn(text=f"{thought('First a look.')}I look.\n{looks}<|im_end|>"),
        turn("<tool_response>.*Hello, Paris", text=f"{thought('Now the edit.')}{edit}<|im_end|>"),
        turn("Edit applied", text="It is Rome now.<|im_end|>"),
        chunk=[1, 7],
    )


def test_calls_at_once_and_an_edit(desk: Desk, scripted_triton: ScriptedServer) -> None:
    plays(desk, scripted_triton)
    ended = opencode(desk, "Make it Rome.")
    assert ended.code == 0, ended.err
    assert ended.out.endswith("It is Rome now.\n")
    assert desk.notes == AFTER
    first, second, third = asked(desk, "/v1/chat/completions", 3)
    assert all(f"`{name}`" in page("opencode") for name in first.left_out), first.left_out
    *_, made, looked, read = second.body["messages"]
    calls = made["tool_calls"]
    assert [entry["function"]["name"] for entry in calls] == ["bash", "read"]
    assert [entry["id"] for entry in calls] == [looked["tool_call_id"], read["tool_call_id"]]
    assert NOTES in looked["content"]
    assert BEFORE.strip() in read["content"]
    assert "Edit applied" in third.body["messages"][-1]["content"]
    assert len(scripted_triton.requests()) == 3
