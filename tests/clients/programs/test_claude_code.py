"""Claude Code: `claude -p` with the settings of its page, against the gateway on the real Triton."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.programs.conftest import ALIAS, CONTEXT, SMALL
from tests.clients.programs.desk import AFTER, BEFORE, NOTES, Desk, call, play_looks_and_an_edit
from tests.clients.programs.pages import MODEL, blocks, exports, named
from tests.clients.programs.recorder import Exchange
from tests.scripted_engine.replay import ScriptedServer, turn

PATH = "/v1/messages?beta=true"


def claude(desk: Desk, prompt: str, *arguments: str, **env: str) -> dict[str, Any]:
    """The result that it prints; ``env``: variables besides those of the page, or in their place."""
    (shell,) = blocks("claude-code", "sh", desk.recorder.url)
    tools = ("--allowedTools", "Bash Read Edit")
    command = ("-p", "--output-format", "json", *arguments, *tools, "--", prompt)
    ended = desk.run("claude", *command, **(exports(shell) | env))
    result: dict[str, Any] = json.loads(ended.out)
    assert ended.code == int(result["is_error"]), ended.err
    return result


def asked(desk: Desk, turns: int) -> list[Exchange]:
    """The requests: so many, all of them Messages that were answered."""
    posts = desk.recorder.posts()
    assert [(post.path, post.status) for post in posts] == [(PATH, 200)] * turns
    return posts


def parts(exchange: Exchange, kind: str) -> list[dict[str, Any]]:
    """The blocks of one type in a request, oldest first."""
    contents = [message["content"] for message in exchange.body["messages"] if isinstance(message["content"], list)]
    return [block for blocks_ in contents for block in blocks_ if block["type"] == kind]


def outputs(exchange: Exchange) -> list[tuple[str, str]]:
    """The calls that a request brings back: each name, and what came of it."""
    results = {block["tool_use_id"]: block["content"] for block in parts(exchange, "tool_result")}
    return [(block["name"], json.dumps(results.pop(block["id"]))) for block in parts(exchange, "tool_use")]


def answered(result: dict[str, Any], text: str, turns: int) -> None:
    assert (result["is_error"], result["result"], result["num_turns"]) == (False, text, turns), result


@pytest.mark.long
def test_a_question(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Rome is in Italy.<|im_end|>"), chunk=3)
    answered(claude(desk, "Where is Rome?"), "Rome is in Italy.", 1)
    (post,) = asked(desk, 1)
    assert post.headers["authorization"] == "Bearer unused"
    assert post.body["model"] == MODEL
    assert any(message["role"] == "system" for message in post.body["messages"])
    betas = {"anthropic-beta.NAME" if name.startswith("anthropic-beta.") else name for name in post.left_out}
    assert sorted(betas) == named("claude-code")
    assert len(scripted_triton.requests()) == 1


def test_calls_at_once_an_edit_and_thinking(desk: Desk, scripted_triton: ScriptedServer) -> None:
    notes = str(desk.work / NOTES)
    looks = [call("Bash", command="ls", description="Lists files"), call("Read", file_path=notes)]
    edit = call("Edit", file_path=notes, old_string=BEFORE.strip(), new_string=AFTER.strip())
    play_looks_and_an_edit(scripted_triton, looks, edit, "has been updated")
    answered(claude(desk, "Make it Rome."), "It is Rome now.", 4)
    assert desk.notes == AFTER
    _, second, third = asked(desk, 3)
    assert [name for name, _ in outputs(second)] == ["Bash", "Read"]
    assert NOTES in outputs(second)[0][1]
    assert BEFORE.strip() in outputs(second)[1][1]
    assert "has been updated" in outputs(third)[2][1]
    assert len(parts(third, "thinking")) == 2
    shown = scripted_triton.requests()
    assert len(shown) == 3
    assert "<think>First a look.</think>I look." in shown[2]["prompt"]


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        pytest.param(("--bare",), {"ANTHROPIC_API_KEY": "unused"}, id="bare"),
        pytest.param((), {"ANTHROPIC_MODEL": ALIAS}, id="a model named as one of Anthropic's", marks=pytest.mark.long),
    ],
)
def test_a_call(desk: Desk, scripted_triton: ScriptedServer, arguments: tuple[str, ...], env: dict[str, str]) -> None:
    scripted_triton.play(
        turn(text=f"{call('Bash', command='ls', description='Lists files')}<|im_end|>"),
        turn(f"<tool_response>{NOTES}", text="There are notes.<|im_end|>"),
        chunk=5,
    )
    answered(claude(desk, "List the files", *arguments, **env), "There are notes.", 2)
    first, second = asked(desk, 2)
    assert first.body["model"] == env.get("ANTHROPIC_MODEL", MODEL)
    ((name, output),) = outputs(second)
    assert name == "Bash"
    assert NOTES in output
    assert len(scripted_triton.requests()) == 2


@pytest.mark.long
def test_an_answer_that_is_cut_is_continued(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(
        turn(text="Rome is", finish="length"),
        turn("assistant\nRome is<.im_end.>", text="in Italy.<|im_end|>"),
    )
    result = claude(desk, "Where is Rome?")
    assert (result["is_error"], result["stop_reason"]) == (False, "end_turn"), result
    assert result["result"].endswith("in Italy.")
    first, second = asked(desk, 2)
    assert second.body["max_tokens"] > first.body["max_tokens"]
    limits = [request["max_tokens"] for request in scripted_triton.requests()]
    assert limits[0] == first.body["max_tokens"]
    assert limits[1] < CONTEXT < second.body["max_tokens"] + len(scripted_triton.requests()[1]["prompt_ids"])


@pytest.mark.long
def test_its_context_is_counted(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play()
    result = claude(desk, "/context")
    assert not result["is_error"], result
    counted = desk.recorder.posts("/v1/messages/count_tokens")
    assert counted
    assert {post.status for post in counted} == {200}
    assert scripted_triton.requests() == []


def test_a_prompt_that_is_too_long(desk: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play()
    result = claude(desk, "List the files", ANTHROPIC_MODEL=SMALL)
    assert result["is_error"]
    assert "too long" in result["result"]
    (post,) = desk.recorder.posts()
    assert post.status == 400
    assert json.loads(post.answer)["error"]["message"].startswith("prompt is too long: ")
    assert scripted_triton.requests() == []


def test_a_triton_that_is_away(early: Desk, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Here I am.<|im_end|>"))
    answered(claude(early, "Are you there?"), "Here I am.", 1)
    assert [post.status for post in early.recorder.posts()] == [529, 200]
