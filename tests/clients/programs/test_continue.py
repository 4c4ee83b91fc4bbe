"""Continue: `cn -p` with the settings of its page, against the gateway on the real Triton."""

from __future__ import annotations

from tests.clients.programs.conftest import SMALL
from tests.clients.programs.desk import AFTER, BEFORE, NOTES, Desk, call, play_looks_and_an_edit
from tests.clients.programs.pages import MODEL, blocks, exports
from tests.clients.programs.process import Outcome
from tests.scripted_engine.replay import ScriptedServer


def cn(desk: Desk, prompt: str, model: str = MODEL) -> Outcome:
    """Run it on a prompt."""
    (settings,) = blocks("continue", "yaml", desk.recorder.url)
    (desk.work / "config.yaml").write_text(settings.replace(MODEL, model), encoding="utf-8")
    (shell,) = blocks("continue", "sh", desk.recorder.url)
    return desk.run("cn", "--config", "config.yaml", "--auto", "-p", prompt, **exports(shell))


def test_calls_at_once_and_an_edit(desk: Desk, scripted_triton: ScriptedServer) -> None:
    looks = [call("Bash", command="ls"), call("Read", filepath=NOTES)]
    edit = call("MultiEdit", file_path=NOTES, edits=[{"old_string": BEFORE.strip(), "new_string": AFTER.strip()}])
    play_looks_and_an_edit(scripted_triton, looks, edit, "Successfully edited")
    ended = cn(desk, "Make it Rome.")
    assert (ended.code, ended.out.strip()) == (0, "It is Rome now."), ended.err
    assert desk.notes == AFTER
    posts = desk.recorder.exchanges
    assert [(post.method, post.path, post.status, post.left_out) for post in posts] == [
        ("POST", "/v1/chat/completions", 200, [])
    ] * 3
    listed, read = (message["content"] for message in posts[1].body["messages"] if message["role"] == "tool")
    assert NOTES in listed
    assert BEFORE in read


def test_a_prompt_longer_than_the_context_is_told_at_once(desk: Desk) -> None:
    ended = cn(desk, "Make it Rome. " * 300, SMALL)
    assert ended.code == 1
    assert "maximum context length is 8192 tokens" in ended.err + ended.out
    assert [post.status for post in desk.recorder.posts()] == [400]
