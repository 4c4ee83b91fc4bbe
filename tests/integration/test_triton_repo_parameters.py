"""Copies of the repository with other parameters, and with an engine that fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from kserve import Answer, Kserve

from gateway_ops.local_stack.tritonserver import TritonServer

FAILING_ENGINE = Path(__file__).with_name("failing_engine")


def with_parameter(repository: Path, folder: Path, model: str, **parameters: str) -> Path:
    """A copy of the repository with other parameters of one model."""
    copy = folder / "repository"
    shutil.copytree(repository, copy, ignore=shutil.ignore_patterns("__pycache__"))
    config = copy / model / "config.pbtxt"
    lines = config.read_text().splitlines()
    for key, value in parameters.items():
        (index,) = [i for i, line in enumerate(lines) if f'key: "{key}"' in line]
        lines[index] = f'parameters {{ key: "{key}", value: {{ string_value: "{value}" }} }}'
    config.write_text("\n".join(lines) + "\n")
    return copy


@pytest.fixture(scope="module")
def server(repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("parameters")
    copy = with_parameter(repository, folder, "tensorrt_llm_bls", accumulate_tokens="true")
    config = copy / "postprocessing" / "config.pbtxt"
    config.write_text(config.read_text().replace('string_value: "4096"', 'string_value: "2"'))
    env = {"ENGINE_GATHER_LOGITS": "true"}
    with TritonServer(copy, model_dir=tiny_model_dir, log_path=folder / "log", env=env) as server:
        server.wait_ready()
        yield server


def log_softmax(logits: np.ndarray) -> np.ndarray:
    exact = logits.astype(np.float64)
    return exact - np.log(np.exp(exact).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble"])
def test_gathered_logits_are_those_behind_the_log_probs(server: TritonServer, model: str) -> None:
    client = Kserve(server.grpc_url)
    inputs = {"input_ids": [20, 21, 22], "input_lengths": 3, "request_output_len": 5, "streaming": False}
    if model == "ensemble":
        inputs = {"text_input": "hi", "max_tokens": 5, "stream": False}
    wanted = dict.fromkeys(("return_log_probs", "return_context_logits", "return_generation_logits"), True)
    wanted |= {"num_prompt_log_probs": 0, "end_id": -1, "exclude_input_in_output": True}
    (whole,) = client.stream(model, **inputs, **wanted)
    inputs["stream" if model == "ensemble" else "streaming"] = True
    stream = client.stream(model, **inputs, **wanted)
    client.close()
    context, logits = whole.tensors["context_logits"][0], whole.tensors["generation_logits"]
    assert logits.shape == (1, 1, 5, 267)
    expected = log_softmax(logits[0, 0])[np.arange(5), whole.ids]
    np.testing.assert_allclose(whole.tensors["output_log_probs"][0, 0], expected, atol=1e-4)
    assert whole.tensors["prompt_log_probs"].shape == (1, len(context) - 1)
    np.testing.assert_allclose(context[-1], logits[0, 0, 0])
    assert ["context_logits" in answer.tensors for answer in stream] == [True] + [False] * 4
    assert [answer.tensors["generation_logits"].shape for answer in stream] == [(1, 1, 1, 267)] * 5


def test_accumulate_tokens_gives_the_text_so_far(server: TritonServer) -> None:
    client = Kserve(server.grpc_url)
    inputs = {"text_input": "hello", "max_tokens": 100, "end_id": -1, "exclude_input_in_output": True}
    (whole,) = client.stream("tensorrt_llm_bls", **inputs)
    texts = [answer.text for answer in client.stream("tensorrt_llm_bls", stream=True, **inputs)]
    client.close()
    assert len(texts) == 100
    assert texts[-1] == whole.text
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


def test_the_states_of_postprocessing_are_bounded(server: TritonServer, greeting: list[int]) -> None:
    client = Kserve(server.grpc_url)
    emoji = greeting[-4:]
    for name in ("one", "two", "three"):
        client.detokenize(name, emoji[:3])
    kept = {name: client.detokenize(name, emoji[3:], FINISH_REASON="stop") for name in ("three", "two", "one")}
    client.close()
    assert (kept["three"], kept["two"]) == ("🙂", "🙂")
    assert kept["one"] != "🙂"


@pytest.fixture(scope="module")
def client(repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kserve]:
    folder = tmp_path_factory.mktemp("failing")
    copy = with_parameter(repository, folder, "tensorrt_llm_bls", engine_silence_seconds="1")
    shutil.rmtree(copy / "tensorrt_llm" / "1")
    shutil.copytree(FAILING_ENGINE / "1", copy / "tensorrt_llm" / "1")
    with TritonServer(copy, model_dir=tiny_model_dir, log_path=folder / "log", exit_timeout_s=0) as server:
        server.wait_ready()
        client = Kserve(server.grpc_url)
        yield client
        client.close()


def ask(client: Kserve, model: str, prompt: str) -> list[Answer]:
    return client.stream(model, text_input=prompt, max_tokens=9, stream=True, timeout=20)


def test_the_ensemble_passes_the_error_on(client: Kserve) -> None:
    for _ in range(10):
        assert "the engine is broken" in ask(client, "ensemble", "x")[-1].error


@pytest.mark.parametrize("prompt", ["x", "xx"], ids=["error", "end without a reason"])
def test_bls_says_that_the_engine_failed(client: Kserve, prompt: str) -> None:
    for _ in range(10):
        last = ask(client, "tensorrt_llm_bls", prompt)[-1]
        assert last.error.startswith(("the engine is broken", "the engine failed"))


def test_bls_gives_up_on_a_silent_engine(client: Kserve) -> None:
    *data, last = ask(client, "tensorrt_llm_bls", "xxx")
    assert len(data) == 2
    assert last.error == "the engine sent no response for 1 s"
