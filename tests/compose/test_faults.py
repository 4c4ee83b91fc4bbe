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
from typing import Any

import pytest
from compose_project import GATEWAY, Project

_READY = "/health/ready"
_CHAT = """
import json, sys, time, httpx
body = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Tell me a long story."}],
        "temperature": 0, "max_tokens": int(sys.argv[1]), "stream": sys.argv[2] == "stream"}
begun = time.monotonic()
with httpx.stream("POST", sys.argv[3] + "/v1/chat/completions", json=body, timeout=60, trust_env=False) as answer:
    text = ""
    for part in answer.iter_text():
        if not text:
            print("first", flush=True)
        text += part
print(json.dumps([answer.status_code, text, time.monotonic() - begun]))
"""


def chat(project: Project, tokens: int, *, stream: bool) -> subprocess.Popen[str]:
    enter = ["nsenter", "-t", str(project.inspect("net")["State"]["Pid"]), "-n"]
    client = [sys.executable, "-c", _CHAT, str(tokens), "stream" if stream else "whole", GATEWAY]
    return subprocess.Popen([*enter, *client], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(client: subprocess.Popen[str]) -> tuple[int, str, float]:
    out, err = client.communicate(timeout=60)
    assert client.returncode == 0, err
    status, text, seconds = json.loads(out.splitlines()[-1])
    return status, text, seconds


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
    assert running.stdout is not None
    assert running.stdout.readline() == "first\n"
    os.kill(server_pid(up, "triton-cpu"), signal.SIGKILL)

    up.wait(lambda: up.get(_READY)[0] == 503, 15)
    assert up.get("/health/live")[0] == 200
    _, text, _ = finish(running)
    assert '"error"' in text
    assert "[DONE]" not in text

    up.wait(lambda: up.inside("curl", "-sf", "http://127.0.0.1:8000/v2/models/ensemble/ready").code == 0, 60)
    assert up.wait(lambda: up.get(_READY)[0] == 200, 15) < 15
    status, text, _ = finish(chat(up, 5, stream=False))
    assert (status, identity(up)) == (200, before), text


def test_a_hanging_triton_gives_errors_within_the_deadlines(up: Project) -> None:
    up.compose("pause", "triton-cpu")
    try:
        status, text, seconds = finish(chat(up, 5, stream=False))
        assert status in (503, 504), text
        assert seconds < 15
        assert json.loads(text)["error"]["message"]
        up.wait(lambda: up.get(_READY)[0] == 503, 20)
        begun = time.monotonic()
        status, body = up.get(_READY, timeout=3)
        assert (status, time.monotonic() - begun < 3) == (503, True)
        assert "reason" in body
        status, text, seconds = finish(chat(up, 5, stream=True))
        assert status == 503, text
        assert seconds < 5
    finally:
        up.compose("unpause", "triton-cpu")


def test_a_stopped_gateway_lets_a_running_answer_end(up: Project) -> None:
    running = chat(up, 60, stream=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "first\n"
    up.compose("stop", "gateway")
    status, text, _ = finish(running)
    assert (status, text.rstrip().endswith("data: [DONE]")) == (200, True), text[-500:]
    assert up.inspect("gateway")["State"]["ExitCode"] == 0
    up.compose("start", "gateway")
