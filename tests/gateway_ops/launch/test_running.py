"""Two models on the CPU engine in the real Triton, by ``gateway launch``: each end is the documented one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from launched import Launched, alive, render

from tests.waiting import wait_until

TOKENS = 1500


def deployment(name: str, model: Path, **more: Any) -> dict[str, Any]:
    small = {"engine": "reference", "model": {"source": str(model)}, "triton": {"max_batch_size": 8}}
    return {"name": name, "prefix": f"{name}_", **small, **more}


def streamed(launch: Launched) -> Iterator[str]:
    """The texts of a streamed answer, as they come."""
    asked = {"text_input": "hello there", "max_tokens": TOKENS, "stream": True, "end_id": 1}
    with httpx.stream("POST", f"{launch.url}/v2/models/one_ensemble/generate_stream", json=asked, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))["text_output"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """Two models, all five Triton models of each."""
    folder = tmp_path_factory.mktemp("whole")
    return render(folder, deployment("one", tiny_model_dir), deployment("two", tiny_model_dir))


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """Two models, of each the engine alone, which is ready sooner."""
    folder = tmp_path_factory.mktemp("engines")
    return render(folder, *(deployment(name, tiny_model_dir, role="draft") for name in ("one", "two")))


def test_it_comes_back_from_failures_and_ends_when_all_is_answered(whole: Path) -> None:
    with Launched(whole, "--restart", "on-failure:2") as launch:
        first = launch.wait_for("ready: ")
        assert "one_ensemble" in first
        assert "two_tensorrt_llm_bls" in first
        os.kill(launch.members("two_tensorrt_llm/1/model.py")[0], signal.SIGKILL)
        launch.wait_for("the process of the model two_tensorrt_llm died")
        launch.wait_for("starting again in 1 s (1 of 2)")
        launch.wait_for("ready: ")
        os.kill(launch.servers()[0], signal.SIGKILL)
        launch.wait_for("tritonserver was killed by signal 9")
        launch.wait_for("starting again in 2 s (2 of 2)")
        launch.wait_for("ready: ")

        undisturbed = list(streamed(launch))
        told = streamed(launch)
        begun = [next(told)]
        launch.process.send_signal(signal.SIGTERM)
        launch.wait_for("stopping: ")
        assert [*begun, *told] == undisturbed
        assert len(undisturbed) == TOKENS
        status, _ = launch.wait()
        assert status == 0
        assert launch.left() == []


@pytest.mark.parametrize(
    ("hurt", "number", "status", "said"),
    [
        ("bin/tritonserver --id=", signal.SIGKILL, 137, "tritonserver was killed by signal 9"),
        (
            "one_tensorrt_llm/1/model.py",
            signal.SIGKILL,
            3,
            "tritonserver is running, but the process of the model one_tensorrt_llm died; ending it",
        ),
        pytest.param(
            "bin/tritonserver --id=",
            signal.SIGSTOP,
            5,
            "tritonserver hangs: no response for 20 s; ending it",
            marks=pytest.mark.long,
        ),
    ],
)
def test_without_a_policy_what_is_hurt_ends_it(
    engines: Path, hurt: str, number: signal.Signals, status: int, said: str
) -> None:
    with Launched(engines) as launch:
        launch.wait_for("ready: ")
        os.kill(launch.members(hurt)[0], number)
        ended, told = launch.wait()
        assert (ended, said in told, "starting again" in told) == (status, True, False)
        assert launch.left() == []


def test_nothing_outlives_a_killed_launch(engines: Path) -> None:
    with Launched(engines) as launch:
        launch.wait_for("ready: ")
        assert len(launch.members()) == 3
        launch.process.kill()
        wait_until(lambda: not launch.left(), 60)


@pytest.mark.long
@pytest.mark.parametrize(("second", "status"), [(signal.SIGINT, 130), (None, 137)])
def test_a_server_that_does_not_heed_the_signal_is_killed(
    engines: Path, second: signal.Signals | None, status: int
) -> None:
    with Launched(engines, "--exit-timeout", "300" if second else "1") as launch:
        launch.wait_for("ready: ")
        os.kill(launch.servers()[0], signal.SIGSTOP)  # it will never end by itself
        launch.process.send_signal(signal.SIGTERM)
        launch.wait_for("stopping: requests in flight have ")
        if second:  # which hurries
            launch.process.send_signal(second)
        ended, said = launch.wait()
        assert (ended, "killed before its graceful shutdown ended" in said) == (status, True)
        assert launch.left() == []


@pytest.mark.long
def test_requests_that_outlast_the_exit_timeout_are_not_answered(whole: Path) -> None:
    with Launched(whole, "--exit-timeout", "1") as launch:
        launch.wait_for("ready: ")
        told = streamed(launch)
        next(told)
        os.kill(launch.members("one_tensorrt_llm/1/model.py")[0], signal.SIGSTOP)  # it will answer no more
        launch.process.send_signal(signal.SIGTERM)
        status, said = launch.wait()
        assert status == 1
        assert "tritonserver ended with status 1" in said
        assert "Exit timeout expired" in said
        with pytest.raises(httpx.RemoteProtocolError):
            list(told)
        assert launch.left() == []


@pytest.mark.long
def test_a_model_that_does_not_load_is_said_and_not_tried_again(tmp_path: Path, tiny_model_dir: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in tiny_model_dir.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"architectures": ["MambaForCausalLM"]}))
    file = render(tmp_path, deployment("one", broken, role="draft"))
    with Launched(file, "--restart", "on-failure") as launch:
        status, said = launch.wait()
        assert status == 1
        assert "tritonserver ended with status 1 while it was starting\n" in said
        assert "MambaForCausalLM" in said
        assert "starting again" not in said
        assert launch.left() == []


@pytest.mark.long
def test_one_of_two_deployments_is_loaded_by_name(engines: Path) -> None:
    with Launched(engines, "--deployment", "two") as launch:
        assert "ready: two_tensorrt_llm at" in launch.wait_for("ready: ")
        assert httpx.get(f"{launch.url}/v2/models/one_tensorrt_llm/ready").status_code == 400
        assert alive(launch.servers()[0])
        launch.process.send_signal(signal.SIGINT)
        assert launch.wait()[0] == 0


def test_before_it_is_ready_there_is_nothing_to_answer(engines: Path) -> None:
    with Launched(engines) as launch:
        wait_until(launch.servers, 60)
        launch.process.send_signal(signal.SIGTERM)
        status, said = launch.wait()
        assert status == 143
        assert "stopped before it was ready" in said
        assert launch.members() == []


@pytest.mark.long
def test_a_server_that_is_not_ready_in_time_is_ended(engines: Path) -> None:
    with Launched(engines, "--ready-timeout", "1") as launch:
        wait_until(launch.servers, 60)
        os.kill(launch.servers()[0], signal.SIGSTOP)
        status, said = launch.wait()
        assert status == 4
        assert "not ready after 1 s: one_tensorrt_llm, two_tensorrt_llm" in said
        assert launch.members() == []
