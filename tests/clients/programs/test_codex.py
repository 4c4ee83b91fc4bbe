"""Codex: `codex exec` with the settings of its page, against the gateway on the real Triton."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs.conftest import CONTEXT, SMALL
from tests.clients.programs.desk import AFTER, BEFORE, NOTES, Desk, call, play_looks_and_an_edit
from tests.clients.programs.pages import blocks, exports, named
from tests.clients.programs.process import Outcome
from tests.clients.programs.recorder import Exchange
from tests.scripted_engine.replay import ScriptedServer, turn

MCP_SERVER = Path(__file__).with_name("weather_mcp.py")
PATCH = f"*** Begin Patch\n*** Update File: {NOTES}\n@@\n-{BEFORE}+{AFTER}*** End Patch\n"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
# A picture of one pixel.
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
# Codex's own sandbox needs a kernel that not every machine has; the folder is a scratch one.
OPEN = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def codex(desk: Desk, prompt: str, *arguments: str, more: str = "") -> Outcome:
    """Run it on a prompt, with ``more`` at the end of its settings."""
    config = desk.home / ".codex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("".join([*blocks("codex", "toml", desk.recorder.url), more]), encoding="utf-8")
    (shell,) = blocks("codex", "sh", desk.recorder.url)
    return desk.run("codex", "exec", *OPEN, *arguments, prompt, **exports(shell))


def asked(desk: Desk, turns: int) -> list[Exchange]:
    """The requests: so many, all of them Responses that were answered."""
    posts = desk.recorder.exchanges
    assert [(post.method, post.path, post.status) for post in posts] == [("POST", "/v1/responses", 200)] * turns
    return posts


def items(exchange: Exchange, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [item for item in exchange.body["input"] if item["type"] == kind]
    return found


def outputs(exchange: Exchange) -> list[tuple[str, str]]:
    """The calls that a request brings back: each name, and what came of it."""
    results = {item["call_id"]: item["output"] for item in items(exchange, "function_call_output")}
    return [(item["name"], json.dumps(results.pop(item["call_id"]))) for item in items(exchange, "function_call")]


def test_a_question(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Rome is in Italy.<|im_end|>"), chunk=3)
    ended = codex(desk, "Where is Rome?")
    assert (ended.code, ended.out) == (0, "Rome is in Italy.\n"), ended.err
    (post,) = asked(desk, 1)
    assert post.headers["authorization"] == "Bearer unused"
    assert sorted(post.left_out) == named("codex")
    assert len(scripted_triton.requests()) == 1


def play_exec(triton: ScriptedServer) -> None:
    """Have the model look twice at once, and edit."""
    looks = [call("exec_command", cmd=command) for command in ("ls", f"cat {NOTES}")]
    edit = call("exec_command", cmd=f"apply_patch <<'EOF'\n{PATCH}EOF")
    play_looks_and_an_edit(triton, looks, edit, "Success. Updated")


@pytest.mark.long
def test_sealed_reasoning_comes_back(sealing_desk: Desk, scripted_triton: ScriptedServer) -> None:
    play_exec(scripted_triton)
    ended = codex(sealing_desk, "Make it Rome.")
    assert (ended.code, ended.out) == (0, "It is Rome now.\n"), ended.err
    assert sealing_desk.notes == AFTER
    posts = asked(sealing_desk, 3)
    assert {name for post in posts for name in post.left_out} == set(named("codex")) - {
        "include.reasoning.encrypted_content"
    }
    sealed = [item["encrypted_content"] for item in items(posts[2], "reasoning")]
    assert [text[:8] for text in sealed] == ["sealed1."] * 2
    assert "<think>First a look.</think>I look." in scripted_triton.requests()[2]["prompt"]


def test_calls_at_once_an_edit_and_reasoning(desk: Desk, scripted_triton: ScriptedServer) -> None:
    play_exec(scripted_triton)
    ended = codex(desk, "Make it Rome.")
    assert (ended.code, ended.out) == (0, "It is Rome now.\n"), ended.err
    assert desk.notes == AFTER
    _, second, third = asked(desk, 3)
    assert [name for name, _ in outputs(second)] == ["exec_command", "exec_command"]
    assert NOTES in outputs(second)[0][1]
    assert BEFORE.strip() in outputs(second)[1][1]
    assert "Success. Updated" in outputs(third)[2][1]
    texts = [part["text"] for item in items(third, "reasoning") for part in item["content"]]
    assert texts == ["First a look.", "Now the edit."]
    shown = scripted_triton.requests()
    assert len(shown) == 3
    assert "<think>First a look.</think>I look." in shown[2]["prompt"]


def test_a_tool_of_an_mcp_server(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(
        turn(text=f"{call('mcp__weather__get_weather', city='Rome')}<|im_end|>"),
        turn("22 degrees in Rome", text="It is warm.<|im_end|>"),
        chunk=4,
    )
    server = f'command = "{sys.executable}"\nargs = ["{MCP_SERVER}"]\ndefault_tools_approval_mode = "approve"\n'
    ended = codex(desk, "How warm is it in Rome?", more=f"[mcp_servers.weather]\n{server}")
    assert (ended.code, ended.out) == (0, "It is warm.\n"), ended.err
    first, second = asked(desk, 2)
    assert {"namespace", "function", "web_search"} <= {tool["type"] for tool in first.body["tools"]}
    (made,) = items(second, "function_call")
    assert (made["name"], made["namespace"]) == ("get_weather", "mcp__weather")
    assert "22 degrees in Rome" in outputs(second)[0][1]


def test_an_answer_with_a_schema(desk: Desk, scripted_triton: ScriptedServer, tmp_path: Path) -> None:
    scripted_triton.play(turn(text='{"city": "Rome"}<|im_end|>'), chunk=3)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    ended = codex(desk, "Where is the Colosseum?", "--output-schema", str(tmp_path / "schema.json"))
    assert (ended.code, json.loads(ended.out)) == (0, {"city": "Rome"}), ended.err
    asked(desk, 1)
    (request,) = scripted_triton.requests()
    assert json.dumps(SCHEMA["required"]) in json.dumps(json.loads(request["guide"]["text"]))


@pytest.mark.long
def test_compaction(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(
        turn(text=f"I look.\n{call('exec_command', cmd='ls')}<|im_end|>"),
        turn("CONTEXT CHECKPOINT COMPACTION", text="There are notes; nothing is changed.<|im_end|>"),
        turn("There are notes; nothing is changed", text="It is done.<|im_end|>"),
    )
    ended = codex(desk, "Look at the files.", "-c", f"model_context_window={CONTEXT // 4}")
    assert (ended.code, ended.out) == (0, "It is done.\n"), ended.err
    first, compacting, after = asked(desk, 3)
    assert first.body["tools"]
    assert compacting.body["tools"] == []
    assert len(outputs(compacting)) == 1
    assert outputs(after) == []
    assert "There are notes; nothing is changed." in json.dumps(after.body["input"])


@pytest.mark.long
def test_an_image_that_the_model_looks_at(desk: Desk, scripted_triton: ScriptedServer) -> None:
    (desk.work / "dot.png").write_bytes(base64.b64decode(DOT))
    scripted_triton.play(
        turn(text=f"{call('view_image', path=str(desk.work / 'dot.png'))}<|im_end|>"),
        turn("An image was left out", text="I cannot see it.<|im_end|>"),
    )
    ended = codex(desk, "What is on the picture?")
    assert (ended.code, ended.out) == (0, "I cannot see it.\n"), ended.err
    _, second = asked(desk, 2)
    assert "input.input_image" in second.left_out


@pytest.mark.long
def test_an_image_of_the_user_is_refused(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play()
    (desk.work / "dot.png").write_bytes(base64.b64decode(DOT))
    ended = codex(desk, "What is on it?", f"--image={desk.work / 'dot.png'}")
    assert ended.code == 1
    assert "'input_image'" in ended.err
    assert [post.status for post in desk.recorder.exchanges] == [400]


def test_a_context_that_is_full(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play()
    ended = codex(desk, "List the files.", "--model", SMALL)
    assert ended.code == 1
    assert "ran out of room" in ended.err
    (post,) = desk.recorder.exchanges
    assert (post.status, json.loads(post.answer)["error"]["code"]) == (400, "context_length_exceeded")
    assert scripted_triton.requests() == []


@pytest.mark.long
def test_a_triton_that_is_away(early: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Here I am.<|im_end|>"))
    ended = codex(early, "Are you there?")
    assert (ended.code, ended.out) == (0, "Here I am.\n"), ended.err
    assert [post.status for post in early.recorder.posts("/v1/responses")] == [503, 200]
