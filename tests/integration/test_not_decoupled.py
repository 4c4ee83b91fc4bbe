"""This project's models where `triton.decoupled` is false: whole answers, and streams of one event."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess

REPOSITORY = Path(__file__).parents[2] / "triton_repo"
MODELS = ("ensemble", "tensorrt_llm", "tensorrt_llm_bls")
ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}


@pytest.mark.long
def test_every_model_answers_the_same_whole_and_streamed(tiny_model_dir: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(REPOSITORY, repository)
    for name in MODELS[1:]:
        file = repository / name / "config.pbtxt"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("model_transaction_policy { decoupled: true }", ""), encoding="utf-8")
    settings = {
        "models": [
            {"name": name, "triton": {"url": "", "model": name}, "tokenizer": str(tiny_model_dir), "max_seq_len": 256}
            for name in MODELS
        ]
    }
    with TritonServer(repository, model_dir=tiny_model_dir, log_path=tmp_path / "triton.log") as server:
        server.wait_ready()
        for model in settings["models"]:
            model["triton"]["url"] = server.grpc_url
        with GatewayProcess(tmp_path / "log", settings) as gateway:
            told = {name: (whole(gateway, name), streamed(gateway, name)) for name in MODELS}
    (text,) = {text for text, _ in told.values()}
    assert text
    assert {name: pieces for name, (_, pieces) in told.items()} == {name: [text] for name in MODELS}


def whole(gateway: GatewayProcess, model: str) -> str:
    return str(gateway.post({**ASKED, "model": model}).json()["choices"][0]["message"]["content"])


def streamed(gateway: GatewayProcess, model: str) -> list[str]:
    answer = gateway.post({**ASKED, "model": model, "stream": True}).text
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"].get("content") for event in events for choice in event["choices"]]
    return [text for text in deltas if text]
