"""``gateway record`` between the gateway and the real Triton, and ``gateway replay`` in that Triton's place."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tritonclient.grpc.service_pb2 import ServerReadyRequest, ServerReadyResponse

from gateway_ops.local_stack.tritonserver import TritonServer
from gateway_ops.record.any_call import AnyCallServer
from gateway_ops.record.recorder import Recorder
from gateway_ops.record.recording import RecordingWriter
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GATEWAY, GatewayProcess
from tests.warm_gateways import WarmGateways

SECRET = "Where is the treasure?"
ASKED: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 12, "seed": 5},
    {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 12, "temperature": 0, "logprobs": True},
    {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "stream": True, "temperature": 0},
]


@contextmanager
def running(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that listens, and the address that it names."""
    command = [GATEWAY, *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"triton\.url to (127\.0\.0\.1:\d+)\. Ctrl-C ends\.", said)
            assert found is not None, said
            yield process, found[1]
        finally:
            process.terminate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.terminate()
    said, warned = process.communicate(timeout=30)
    return process.returncode, said, warned


@contextmanager
def before(url: str, model: Path, folder: Path, **more: str) -> Iterator[GatewayProcess]:
    folder.mkdir()
    with GatewayProcess.of_model(folder / "log", "tiny", url, model, 512, **more) as process:  # fmt: skip
        yield process


def answers(gateway: GatewayProcess, *bodies: dict[str, Any]) -> list[str]:
    """What the gateway answers, but for ids and times."""
    found = []
    for body in bodies:
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", json={"model": "tiny", **body}, timeout=60)
        text = re.sub(r"chatcmpl-\w+", "ID", f"{answer.status_code} {answer.text}")
        found.append(re.sub(r'"created":\s?\d+', "CREATED", text))
    return found


@pytest.mark.parametrize("transport", ["h2", "grpcio"])
def test_a_recording_answers_as_triton_did(
    transport: str, triton: TritonServer, tiny_model_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "recording"
    of_triton: dict[str, str] = {"GATEWAY_TRANSPORT": transport}
    with running("record", triton.grpc_url, file) as (recorder, url):
        with before(url, tiny_model_dir, tmp_path / "recorded", **of_triton) as gateway:
            said = answers(gateway, *ASKED)
        assert [each[:3] for each in said] == ["200"] * 3
        status, last, _ = ended(recorder)
    assert status == 0
    assert re.fullmatch(rf"\d+ calls are in {re.escape(str(file))}\.\n", last)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "input_ids" in file.read_text()
    with running("replay", file, "--at-once") as (replayer, url):
        with before(url, tiny_model_dir, tmp_path / "replayed", **of_triton) as gateway:
            assert answers(gateway, *ASKED) == said
            other = answers(gateway, {**ASKED[0], "max_tokens": 13})
            assert answers(gateway, *ASKED) == said  # again: the last answer stays
        status, _, told = ended(replayer)
    assert status == 0
    assert other[0].startswith("50")
    assert "the recording does not contain this request" not in other[0]
    assert re.search(
        r"^ModelStreamInfer was not recorded with this request of \w+: the nearest one differs in \w+$",
        told,
        re.MULTILINE,
    )


def test_a_redacted_recording_has_no_words_and_is_replayed(
    triton: TritonServer, tiny_model_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "recording"
    with running("record", triton.grpc_url, file, "--redact") as (recorder, url):
        with before(url, tiny_model_dir, tmp_path / "recorded") as gateway:
            usage = json.loads(answers(gateway, ASKED[1])[0].replace("CREATED", '"created":0')[4:])["usage"]
        assert ended(recorder)[0] == 0
    ids = [
        value
        for line in file.read_text().splitlines()[1:]
        for message in (json.loads(line)["request"], *json.loads(line)["answers"])
        for name, values in message.get("tensors", {}).items()
        if name in {"input_ids", "output_ids"}
        for value in values
    ]
    assert ids
    assert set(ids) == {0}
    with running("replay", file) as (_, url), before(url, tiny_model_dir, tmp_path / "replayed") as gateway:
        (said,) = answers(gateway, ASKED[1])
    assert json.loads(said.replace("CREATED", '"created":0')[4:])["usage"]["prompt_tokens"] == usage["prompt_tokens"]


def test_ctrl_c_writes_down_what_is_under_way(scripted_triton: ScriptedServer, tmp_path: Path) -> None:
    scripted_triton.play(turn("endless", text="A begun answer", hold=True))
    file = tmp_path / "recording"
    body = {"model": "tiny", "messages": [{"role": "user", "content": "endless"}], "stream": True}
    with (
        running("record", scripted_triton.grpc_url, file) as (recorder, url),
        before(url, scripted_triton.model_dir, tmp_path / "recorded") as gateway,
        httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=60) as answer,
    ):
        lines = answer.iter_lines()
        assert next(line for line in lines if '"content":"A' in line)
        assert ended(recorder)[0] == 0
        rest = list(lines)
    assert any('"error"' in line for line in rest)
    calls = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    streams = [each for each in calls if each["method"].endswith("/ModelStreamInfer")]
    (call,) = [each for each in streams if each["status"] == "CANCELLED"]
    assert call["answers"]


async def test_a_call_whose_sending_was_cancelled_is_written_down(tmp_path: Path) -> None:
    """gRPC cancels the task that sends an answer, and leaves the generator that made it where it stands."""

    async def one_then_none(method: str, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        del method, context
        async for _ in requests:
            yield ServerReadyResponse(ready=True).SerializeToString()
        await asyncio.Event().wait()

    async def asked() -> AsyncIterator[bytes]:
        yield ServerReadyRequest().SerializeToString()

    context = SimpleNamespace(invocation_metadata=tuple, time_remaining=lambda: None)
    file = tmp_path / "recording"
    async with AnyCallServer("127.0.0.1:0", one_then_none) as triton:
        with RecordingWriter(file, "0", redact=False, most_bytes=10**6) as writer:
            recorder = Recorder(f"127.0.0.1:{triton.port}", writer)
            answers = recorder.serve("/inference.GRPCInferenceService/ServerReady", asked(), context)

            async def first() -> bytes:
                return await anext(answers)

            await asyncio.create_task(first())
            await recorder.close()
        await answers.aclose()  # which Python does some time later, and which writes nothing more
    (call,) = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert (call["status"], call["answers"]) == ("CANCELLED", [{"ready": True}])


def test_what_is_no_recording_is_refused_by_name(tmp_path: Path) -> None:
    head = {"recording": 1, "gateway": "0.1.0", "redacted": False}
    call: dict[str, Any] = {"method": "/inference.GRPCInferenceService/ServerReady", "request": {}}
    for lines, says in (
        (
            [{**head, "recording": 2, "gateway": "9.0"}],
            "is a recording of form 2, by gateway 9.0; this gateway reads form 1",
        ),
        (["text"], "is not a recording of `gateway record`"),
        ([head, {"method": 5}], "line 2: method "),
        ([head, {**call, "answers": [{"ready": "of course"}], "after_s": [0.0]}], "line 2: "),
        ([head, {**call, "status": "FINE"}], "line 2: "),
    ):
        file = tmp_path / "recording"
        file.write_text("\n".join(map(json.dumps, lines)))
        done = WarmGateways.of_this_process().run(["replay", file], os.environ)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
        assert says in done.stderr
    done = WarmGateways.of_this_process().run(["record", "127.0.0.1:1", file], os.environ)
    assert (done.returncode, done.stderr) == (1, f"error: {file} cannot be written: File exists\n")


def test_a_taken_port_is_said_in_our_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = ["record", "127.0.0.1:1", tmp_path / "calls", "--port", port]
        done = WarmGateways.of_this_process().run(command, os.environ)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: cannot listen on 127.0.0.1 port {port} (Address already in use): choose another port with --port\n"
    )
