"""``gateway up`` keeps a Triton that is killed, stopped or without its engine: answers come again by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway_ops.local_stack.process_tree import arguments, descendants
from tests.ports import free_port
from tests.stack import GATEWAY

pytestmark = pytest.mark.long


class Up:
    """``gateway up`` in the foreground, on the tiny model."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.port, self.said = free_port(), folder / "said"
        self._model = model.name
        command = [GATEWAY, "up", "--model", str(model), "--port", str(self.port)]
        env = {**os.environ, "XDG_STATE_HOME": str(folder), "GATEWAY_FIRST_TOKEN_TIMEOUT_S": "60"}
        with self.said.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=env)

    def answers(self, seconds: float) -> None:
        """Wait until a request is answered."""
        deadline, last = time.monotonic() + seconds, "nothing"
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.said.read_text()[-4000:]
            try:
                body = {"model": self._model, "prompt": "go on", "max_tokens": 1}
                answer = httpx.post(f"http://127.0.0.1:{self.port}/v1/completions", json=body, timeout=10)
                last = answer.text
                if answer.status_code == 200:
                    return
            except httpx.TransportError as error:
                last = str(error)
            time.sleep(0.1)
        raise AssertionError(f"{last}\n{self.said.read_text()[-4000:]}")

    def pids(self, words: str) -> list[int]:
        """The processes with some words in their command lines."""
        return [pid for pid in descendants(self.process.pid) if words in " ".join(arguments(pid)[:2])]


@pytest.fixture
def up(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Up]:
    running = Up(tiny_model_dir, tmp_path)
    try:
        running.answers(90)
        while "Ready: " not in running.said.read_text():  # from here on it watches Triton
            assert running.process.poll() is None, running.said.read_text()[-4000:]
            time.sleep(0.1)
        yield running
    finally:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(60)


@pytest.mark.parametrize(
    ("words", "number", "told"),
    [
        ("bin/tritonserver", signal.SIGKILL, "was killed by signal 9"),
        ("bin/tritonserver", signal.SIGSTOP, "hangs"),
        *(
            (f"/{model}/1/model.py", signal.SIGKILL, "is running, but the process")
            for model in ("preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls")
        ),
    ],
)
def test_it_answers_again_within_a_minute(up: Up, words: str, number: signal.Signals, told: str) -> None:
    hurt = up.pids(words)
    assert hurt
    for pid in hurt:
        os.kill(pid, number)
    deadline = time.monotonic() + 60
    while "ready again" not in up.said.read_text():
        assert up.process.poll() is None, up.said.read_text()[-4000:]
        assert time.monotonic() < deadline, up.said.read_text()[-4000:]
        time.sleep(0.1)
    up.answers(deadline - time.monotonic())
    said = up.said.read_text()
    assert f"tritonserver {told}" in said
    assert "starting it again in 1 s (1 of 5)" in said
