"""Triton dies, Triton hangs, the gateway is told to stop: what clients see, and how it comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compose_project import GATEWAY, Project

_READY = "/health/ready"
_CHAT = """
import json, sys, time, httpx
body = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Tell me a long story."}],
        "temperature": 0, "max_tokens": int(sys.argv[1]), "stream": sys.argv[2] == "stream"}
begun = time.monotonic()
with httpx.stream("POST", sys.argv[3] + "/v1/chat/completions", json=body, timeout=60, trust_env=False) as answer:
    text, last = "", 0.0
    for part in answer.iter_text():
        if not text:
            print("first", flush=True)
        text, last = text + part, time.time()
print(json.dumps([answer.status_code, text, time.monotonic() - begun, last]))
"""


def chat(project: Project, tokens: int, *, stream: bool) -> subprocess.Popen[str]:
    enter = ["nsenter", "-t", str(project.inspect("net")["State"]["Pid"]), "-n"]
    client = [sys.executable, "-c", _CHAT, str(tokens), "stream" if stream else "whole", GATEWAY]
    return subprocess.Popen([*enter, *client], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Answer(NamedTuple):
    """What a client had, how long it took, and when the last of it came (Unix time)."""

    status: int
    text: str
    seconds: float
    last: float


def finish(client: subprocess.Popen[str]) -> Answer:
    out, err = client.communicate(timeout=60)
    assert client.returncode == 0, err
    return Answer(*json.loads(out.splitlines()[-1]))


def told_to_stop(project: Project, service: str, since: float) -> float:
    """When the engine sent a service SIGTERM (Unix time)."""
    line = project.engine.docker(
        "events", "--since", f"{since:.3f}", "--until", f"{time.time():.3f}", "--format", "{{json .}}",
        "--filter", "event=kill", "--filter", f"container={project.container(service)}",
    )  # fmt: skip
    event = json.loads(line.splitlines()[0])
    assert event["Actor"]["Attributes"]["signal"] == "15"
    return float(event["timeNano"]) / 1e9


def server_pid(project: Project, service: str) -> int:
    """The service's own process: the only child of the container's init."""
    init = int(project.inspect(service)["State"]["Pid"])
    return int(Path(f"/proc/{init}/task/{init}/children").read_text().split()[0])


def identity(project: Project) -> tuple[Any, ...]:
    state = project.inspect("gateway")
    return state["Id"], state["State"]["StartedAt"], state["RestartCount"]


@pytest.fixture(autouse=True)
def _healthy(up: Project) -> Iterator[None]:
    yield
    up.wait(lambda: up.get(_READY)[0] == 200, 60)


def test_triton_is_killed_and_comes_back_by_itself(up: Project) -> None:
    before = identity(up)
    running = chat(up, 400, stream=True)
    assert running.stdout.readline() == "first\n"
    os.kill(server_pid(up, "triton-cpu"), signal.SIGKILL)

    up.wait(lambda: up.get(_READY)[0] == 503, 15)
    assert up.get("/health/live")[0] == 200
    text = finish(running).text
    assert '"error"' in text
    assert "[DONE]" not in text

    up.wait(lambda: up.inside("curl", "-sf", "http://127.0.0.1:8000/v2/models/ensemble/ready").code == 0, 60)
    assert up.wait(lambda: up.get(_READY)[0] == 200, 15) < 15
    answer = finish(chat(up, 5, stream=False))
    assert (answer.status, identity(up)) == (200, before), answer.text


def test_a_hanging_triton_gives_errors_within_the_deadlines(up: Project) -> None:
    up.compose("pause", "triton-cpu")
    try:
        status, text, seconds, _ = finish(chat(up, 5, stream=False))
        assert status in (503, 504), text
        assert seconds < 15
        assert json.loads(text)["error"]["message"]
        up.wait(lambda: up.get(_READY)[0] == 503, 20)
        begun = time.monotonic()
        status, body = up.get(_READY, timeout=3)
        assert (status, time.monotonic() - begun < 3) == (503, True)
        assert "reason" in body
        status, text, seconds, _ = finish(chat(up, 5, stream=True))
        assert status == 503, text
        assert seconds < 5
    finally:
        up.compose("unpause", "triton-cpu")


def stopped_while_it_answers(project: Project, tokens: int) -> tuple[Answer, float]:
    """Stop the gateway once a client has the first part of its answer; the answer, and when it was told to stop."""
    running = chat(project, tokens, stream=True)
    assert running.stdout.readline() == "first\n"
    begun = time.time()
    project.compose("stop", "gateway")
    answer = finish(running)
    assert project.inspect("gateway")["State"]["ExitCode"] == 0
    told = told_to_stop(project, "gateway", begun)
    project.compose("start", "gateway")
    return answer, told


def test_a_stopped_gateway_lets_a_running_answer_end(up: Project) -> None:
    for tokens in (50, 100, 200, 400):
        answer, told = stopped_while_it_answers(up, tokens)
        assert (answer.status, answer.text.rstrip().endswith("data: [DONE]")) == (200, True), answer.text[-500:]
        if answer.last > told:
            return
        # Compose took longer than the answer, which tells nothing then: a longer one.
        up.wait(lambda: up.get(_READY)[0] == 200, 60)
    pytest.fail("each answer was over before the gateway was told to stop")
