"""Speculative decoding on a real Triton: a draft model behind tensorrt_llm_bls, predictions of clients; the example."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from kserve import Kserve, steps
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess
from tests.tiny_model import write_tiny_model
from tests.warm_gateways import WarmGateways

EXAMPLE = Path(__file__).parents[2] / "examples" / "speculative"
GATEWAY = Path(sys.executable).with_name("gateway")
BLS = "tensorrt_llm_bls"
DRAFT_CONTEXT = 128
BODY = {"messages": [{"role": "user", "content": "Count to ten."}], "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def draft_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft model that is right at times: the target's weights, a little astray, and a shorter context."""
    folder = tmp_path_factory.mktemp("draft")
    write_tiny_model(folder)
    weights = load_file(folder / "model.safetensors")
    rng = np.random.default_rng(3)
    for name, value in weights.items():
        weights[name] = value + rng.normal(0, 0.04 * value.std(), value.shape).astype(np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": DRAFT_CONTEXT}))
    return folder


@pytest.fixture(scope="module")
def triton(
    repository: Path, tiny_model_dir: Path, draft_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """The example's target and draft."""
    folder = tmp_path_factory.mktemp("speculative")
    text = (EXAMPLE / "deployment.yaml").read_text()
    (folder / "deployment.yaml").write_text(
        text.replace("TARGET", str(tiny_model_dir)).replace("DRAFT", str(draft_dir))
    )
    build = ["repo", "deployment.yaml", "-o", "repository", "--repository", repository]
    WarmGateways.of_this_process().run(build, os.environ, folder=folder).check_returncode()
    with TritonServer(folder / "repository", model_dir=None, engine=None, log_path=folder / "triton.log") as server:
        server.wait_ready(["ensemble", BLS, "tensorrt_llm_draft"])
        yield server


@pytest.fixture(scope="module")
def client(triton: TritonServer) -> Iterator[Kserve]:
    kserve = Kserve(triton.grpc_url)
    yield kserve
    kserve.close()


@pytest.fixture(scope="module")
def gateway(triton: TritonServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """The example's settings, with a third model that compares logits."""
    settings = yaml.safe_load((EXAMPLE / "gateway.yaml").read_text())
    drafted = settings["models"][0]
    by_logits = {**drafted, "name": "by-logits", "speculative": {"num_draft_tokens": 5, "use_draft_logits": True}}
    settings["models"].append(by_logits)
    for model in settings["models"]:
        model["triton"]["url"] = triton.grpc_url
    folder = tmp_path_factory.mktemp("gateway")
    with GatewayProcess(folder / "log", settings) as process:
        yield process


@pytest.mark.parametrize("by_logits", [False, True])
def test_drafts_do_not_change_a_greedy_answer_and_save_steps(
    client: Kserve, triton: TritonServer, by_logits: bool
) -> None:
    request = {"text_input": "Once upon a time", "max_tokens": 40, "end_id": -1, "exclude_input_in_output": True}
    taken, texts = [], []
    for drafts in ({}, {"num_draft_tokens": 5, "use_draft_logits": by_logits}):
        before = steps(triton)
        (answer,) = client.stream(BLS, **request, **drafts, return_perf_metrics=True, return_log_probs=True)
        assert not answer.error
        taken.append(steps(triton) - before)
        texts.append(answer)
    plain, drafted = texts
    assert drafted.text == plain.text
    assert drafted.final
    np.testing.assert_allclose(drafted.tensors["output_log_probs"], plain.tensors["output_log_probs"], atol=1e-3)
    total, accepted = (int(drafted.tensors[f"total_{kind}draft_tokens"].item()) for kind in ("", "accepted_"))
    assert 0 < accepted < total
    assert drafted.tensors["acceptance_rate"].item() == pytest.approx(accepted / total)
    assert taken[1] < 0.8 * taken[0]
    assert "total_draft_tokens" not in plain.tensors


def ask(gateway: GatewayProcess, model: str, **more: Any) -> dict[str, Any]:
    answer = gateway.post(BODY | {"model": model, "max_tokens": 40} | more)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def predicted_tokens(gateway: GatewayProcess) -> list[float]:
    """Tokens of predictions that the gateway has counted as accepted, and as rejected."""
    text = httpx.get(f"{gateway.url}/metrics", timeout=10).text
    name = 'gateway_predicted_tokens_total{model="predicted",outcome='
    names = [f'{name}"{outcome}"}} ' for outcome in ("accepted", "rejected")]
    return [float(line.removeprefix(name)) for name in names for line in text.splitlines() if line.startswith(name)]


def said(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize("model", ["drafted", "by-logits"])
def test_a_chat_is_drafted_for_and_stays_the_targets_own(
    gateway: GatewayProcess, triton: TritonServer, model: str
) -> None:
    counts = []
    for number in (0, None):
        before = steps(triton)
        counts.append(
            (
                ask(gateway, model, num_draft_tokens=number, return_token_ids=True),
                steps(triton) - before,
            )
        )
    (plain, plain_steps), (drafted, drafted_steps) = counts
    assert drafted["choices"] == plain["choices"]
    by_ids = ask(gateway, "predicted", return_token_ids=True)
    assert drafted["choices"][0]["token_ids"] == by_ids["choices"][0]["token_ids"]
    assert drafted["usage"]["completion_tokens"] == 40
    assert drafted_steps < 0.8 * plain_steps


def test_a_drafted_chat_streams_round_by_round(gateway: GatewayProcess) -> None:
    whole = said(ask(gateway, "drafted", logprobs=True, top_logprobs=2))
    body = BODY | {"model": "drafted", "max_tokens": 40, "stream": True, "logprobs": True, "top_logprobs": 2}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=30) as stream:
        events = [line[6:] for line in stream.iter_lines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    choices = [choice for event in events for choice in httpx.Response(200, text=event).json()["choices"]]
    pieces = [choice["delta"].get("content") or "" for choice in choices]
    assert "".join(pieces) == whole
    assert 2 < len([piece for piece in pieces if piece]) < 40
    entries = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert len(entries) == 40
    assert choices[-1]["finish_reason"] == "length"


def test_an_answer_may_outgrow_the_draft_model(gateway: GatewayProcess, triton: TritonServer) -> None:
    plain = ask(gateway, "drafted", num_draft_tokens=0, max_tokens=DRAFT_CONTEXT + 20, return_token_ids=True)
    drafted = ask(gateway, "drafted", max_tokens=DRAFT_CONTEXT + 20, return_token_ids=True)
    assert drafted["choices"] == plain["choices"]
    assert "continuing without tensorrt_llm_draft" in triton.log()


def test_a_stop_string_ends_a_drafted_answer_in_both_engines(gateway: GatewayProcess, triton: TritonServer) -> None:
    whole = said(ask(gateway, "drafted"))
    before = steps(triton)
    answer = ask(gateway, "drafted", max_tokens=1500, stop=whole[5:8])
    assert said(answer) == whole[: whole.index(whole[5:8])]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert said(ask(gateway, "predicted", max_tokens=5)) == whole[: len(said(ask(gateway, "predicted", max_tokens=5)))]
    assert steps(triton) - before < 600


def test_a_draft_model_that_is_missing_is_a_start_error(triton: TritonServer, tmp_path: Path) -> None:
    model = {"name": "m", "triton": {"url": triton.grpc_url}, "speculative": {"num_draft_tokens": 4}}
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump({"models": [model]}))
    env = {"GATEWAY_CONFIG": str(tmp_path / "gateway.yaml"), "PATH": str(GATEWAY.parent), "GATEWAY_PORT": "0"}
    env["XDG_STATE_HOME"] = str(tmp_path)
    done = WarmGateways.of_this_process().run(["serve"], env)
    assert done.returncode != 0
    told = " ".join((done.stdout + done.stderr).split())
    assert "models[0].speculative.num_draft_tokens" in told
    assert "no draft model" in told


def test_a_prediction_saves_steps_and_changes_nothing(
    gateway: GatewayProcess, triton: TritonServer, tokenizer: Tokenizer
) -> None:
    letters = {str(tokenizer.token_to_id(letter)): 100 for letter in "abcdfgijk"}  # whose text gives the same ids
    answer, counted_before = said(ask(gateway, "predicted", logit_bias=letters)), predicted_tokens(gateway)
    for content, right in ((answer, 40), (answer[:12] + "." + answer[13:], 12), ([{"type": "text", "text": "No."}], 0)):
        before = steps(triton)
        prediction = {"type": "content", "content": content}
        predicted = ask(gateway, "predicted", logit_bias=letters, prediction=prediction)
        assert said(predicted) == answer
        details = predicted["usage"]["completion_tokens_details"]
        size = 40 if isinstance(content, str) else 3
        assert details["accepted_prediction_tokens"] == right
        assert details["rejected_prediction_tokens"] == size - right
        assert steps(triton) - before == pytest.approx(40 - min(right, 39), abs=1)
    whole = {"type": "content", "content": answer}
    usage = ask(gateway, "predicted", logit_bias=letters, prediction=whole, stop=answer[4:7])["usage"]
    size, details = usage["completion_tokens"], usage["completion_tokens_details"]
    assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (size, 40 - size)
    assert size == answer.index(answer[4:7]) + 3
    counted = [now - before for now, before in zip(predicted_tokens(gateway), counted_before, strict=True)]
    assert counted == [40 + 12 + 0 + size, 0 + 28 + 3 + 40 - size]


def run_example(script: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, EXAMPLE / script, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_the_example_through_the_gateway(gateway: GatewayProcess) -> None:
    *answers, counts = run_example("chat.py", f"{gateway.url}/v1")
    names, texts = zip(*(line.split(":", 1) for line in answers), strict=True)
    assert names == ("without drafts", "with drafts", "streamed", "predicted")
    assert len({ast.literal_eval(text.strip()) for text in texts}) == 1
    found = re.fullmatch(r"(\d+) tokens accepted, (\d+) rejected", counts)
    assert found is not None
    assert int(found[1]) + int(found[2]) > 10


@pytest.mark.long
def test_the_example_by_tensors(triton: TritonServer) -> None:
    text = re.compile(r"^[a-z ]+:\s+('.*?'|\".*?\")(?:, (\d+) of (\d+) guesses accepted)?$")
    found = [text.match(line) for line in run_example("ask.py", triton.grpc_url)]
    assert len(found) == 3
    assert len({ast.literal_eval(match[1]) for match in found if match is not None}) == 1
    for match in found[1:]:
        assert match is not None
        assert 0 < int(match[2]) <= int(match[3])
