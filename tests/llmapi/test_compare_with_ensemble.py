"""``gateway compare`` between a double of the stock ensemble and the engine ``llmapi``: the planted differences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from llmapi_stack import Server
from typer.testing import CliRunner

from gateway_ops.cli.root import app
from gateway_ops.compare.asking import ComparedRequest
from gateway_ops.compare.sampled_requests import Sample
from tests.doubles.stock.server import StockServer
from tests.scripted_engine.replay import turn
from tests.stack import GatewayProcess

COUNT = 40
LONGEST = 64  # tokens of the longest answer of a sample
A = 40  # a token, of a letter


@pytest.fixture(scope="module")
def gateway(
    server: Server, stock_triton: StockServer, model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("ensemble-and-llmapi")
    common = {"tokenizer": str(model_dir), "max_seq_len": 2048}
    tritons = {
        "old": {"url": stock_triton.grpc_url, "model": stock_triton.ensemble("1.2.1")},
        "new": {"url": server.triton.grpc_url, "model": "tensorrt_llm"},
    }
    models = [{"name": name, "triton": triton, **common} for name, triton in tritons.items()]
    (folder / "gateway.yaml").write_text(yaml.safe_dump({"models": models}))
    with GatewayProcess(folder / "log", GATEWAY_CONFIG=str(folder / "gateway.yaml")) as running:
        yield running


@pytest.fixture(scope="module")
def sample() -> list[ComparedRequest]:
    # The double has neither log-probs that mean something nor guides.
    return list(Sample(COUNT, 0, {"logprobs", "response_format", "tools"}, 2048))


@pytest.fixture(scope="module")
def turns(gateway: GatewayProcess, sample: list[ComparedRequest]) -> dict[int, dict[str, Any]]:
    """What the new engine says to each request, as turns of the double."""
    found = {}
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        for request in sample:
            dropped = ("stop", "stream", "stream_options")
            body = {name: value for name, value in request.body.items() if name not in dropped}
            body |= {"model": "new", "max_tokens": LONGEST, "return_token_ids": True}
            said = client.post(request.path, json=body).json()
            (choice,) = said["choices"]
            prompt = said.get("prompt_token_ids") or choice["prompt_token_ids"]
            found[request.place] = turn(prompt_ids=prompt, ids=choice["token_ids"])
    return found


def compared(
    gateway: GatewayProcess, folder: Path, requests: list[ComparedRequest], *options: str
) -> tuple[Any, int, str]:
    file, report = folder / "requests.jsonl", folder / "report.json"
    lines = [{"custom_id": f"r{each.place}", "url": each.path, "body": dict(each.body)} for each in requests]
    file.write_text("".join(json.dumps({**line, "method": "POST"}) + "\n" for line in lines))
    command = ["compare", "old", "new", "--url", gateway.url, "--requests", str(file), "--output", str(report)]
    done = CliRunner().invoke(app, [*command, *options])
    assert done.exit_code in {0, 1}, done.output
    return json.loads(report.read_text()), done.exit_code, done.stdout


def differences(found: Any) -> dict[str, set[str]]:
    rows = [row for row in found["rows"] if row["outcome"] != "equal"]
    return {row["name"]: {each["in"] for each in row["differences"]} or {row["outcome"]} for row in rows}


def test_what_is_answered_alike_is_equal(
    gateway: GatewayProcess, stock_triton: StockServer, sample: list[ComparedRequest], turns: Any, tmp_path: Path
) -> None:
    stock_triton.play(*turns.values(), chunk=[1, 3, 2])
    found, status, _ = compared(gateway, tmp_path, sample)
    assert differences(found) == {}
    assert (found["requests"]["equal"], status) == (COUNT, 0)


def test_what_is_planted_is_found_and_nothing_else(
    gateway: GatewayProcess, stock_triton: StockServer, sample: list[ComparedRequest], turns: Any, tmp_path: Path
) -> None:
    plain = [each for each in sample if "stop" not in each.body]
    ended = next(each for each in plain if len(turns[each.place]["ids"]) < each.body["max_tokens"])
    other, shorter, scored, rejected, *rest = (
        each for each in plain if len(turns[each.place]["ids"]) >= each.body["max_tokens"]
    )
    streamed = next(each for each in rest if each.body.get("stream"))
    planted = {number: {**each, "ids": list(each["ids"])} for number, each in turns.items()}
    for each in (other, streamed):
        ids = planted[each.place]["ids"]
        ids[7] = A if ids[7] != A else A + 1
    del planted[shorter.place]["ids"][5:]
    planted[ended.place]["ids"].append(A)
    stock_triton.play(*planted.values(), chunk=[1, 3, 2])
    more = [
        ComparedRequest(COUNT + 1, "", "/v1/chat/completions", {**body_of(rejected), "min_p": 0.1}),
        ComparedRequest(COUNT + 2, "", "/v1/chat/completions", {**body_of(scored), "logprobs": True}),
        ComparedRequest(COUNT + 3, "", "/v1/chat/completions", {**body_of(rejected), "max_tokens": -1}),
    ]
    found, status, shown = compared(gateway, tmp_path, [*sample, *more])
    assert differences(found) == {
        f"r{other.place}": {"text"},
        f"r{streamed.place}": {"text"},
        f"r{shorter.place}": {"text", "finish_reason", "usage"},
        f"r{ended.place}": {"text", "usage"},
        f"r{COUNT + 1}": {"refused_by_a"},  # its model has no input for it
        f"r{COUNT + 2}": {"logprobs"},  # those of the double are made up
        f"r{COUNT + 3}": {"refused_by_both"},
    }
    assert status == 1
    rows = {row["name"]: row for row in found["rows"]}
    (text,) = rows[f"r{other.place}"]["differences"]
    with_new = turns[other.place]["ids"]
    assert text["at_character"] == common_text(gateway, with_new, planted[other.place]["ids"])
    assert rows[f"r{COUNT + 1}"]["a"]["param"] == "min_p"
    lengths = {each["in"]: each for each in rows[f"r{shorter.place}"]["differences"]}
    assert lengths["finish_reason"]["a"] == "stop"
    assert lengths["finish_reason"]["b"] == "length"
    assert lengths["usage"]["completion_tokens"] == {"a": 5, "b": shorter.body["max_tokens"]}
    assert f"{COUNT - 4} equal, 5 differs, 1 rejected by a, 1 rejected by both" in shown
    assert "A rejects (400 unsupported_parameter min_p)" in shown


def body_of(request: ComparedRequest) -> dict[str, Any]:
    kept = {name: value for name, value in request.body.items() if name not in ("stream", "stream_options", "prompt")}
    return {"messages": [{"role": "user", "content": request.body.get("prompt", "")}], **kept}


def common_text(gateway: GatewayProcess, *answers: list[int]) -> int:
    """How many characters two answers begin with alike."""
    texts = []
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        for ids in answers:
            said = client.post("/detokenize", json={"model": "new", "tokens": ids})
            texts.append(said.json()["prompt"])
    pairs = enumerate(zip(*texts, strict=False))
    return next(place for place, (mine, other) in pairs if mine != other)
