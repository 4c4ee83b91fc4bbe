"""A rendered repository in the real Triton: two deployments side by side, one of them as for the C++ backend.

TensorRT-LLM is not here: its engine model is the reference engine behind exactly the tensors that were rendered for the
C++ backend, without any extension of this project.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from kserve import Kserve

from gateway.generation import SamplingParams
from gateway.generation.request import Matrix, PromptTable
from gateway.settings.settings_validation import validate_deployments
from gateway.settings.yaml_file import read_document
from gateway.text.prompt.prompt import Prompt
from gateway.triton.inspection import read_configurations
from gateway.triton.triton_backend import TritonBackend
from gateway_ops.local_stack.tritonserver import TritonServer
from gateway_ops.repository.configs import configurations
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.difference import differences
from gateway_ops.repository.rendered_files import render, write
from tests.engine_requests import generation_request
from tests.reference_engine import put_reference_engine
from tests.tiny_model import VOCAB_SIZE
from tests.warm_gateways import WarmGateways

PROMPT = {"text_input": "hello there", "max_tokens": 12}
LONGEST = 64


def settings(model: Path) -> str:
    small = {"model": {"source": str(model)}, "triton": {"max_batch_size": 8}}
    native = {**small, "name": "native", "engine": "tensorrt", "engine_dir": "/engines/tiny", "prefix": "a_"}
    native["prompt_table_datatype"] = "FP32"
    ours = {**small, "name": "ours", "engine": "reference", "prefix": "b_", "limits": {"max_seq_len": LONGEST}}
    return yaml.safe_dump({"deployments": [native, ours]})


@pytest.fixture(scope="module")
def served(
    repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TritonServer, Path]]:
    folder = tmp_path_factory.mktemp("rendered")
    file = folder / "gateway.yaml"
    file.write_text(settings(tiny_model_dir))
    deployments, problems = validate_deployments(read_document(file))
    assert not problems
    assert not list(contradictions(deployments))
    target = folder / "repository"
    write(render(deployments, repository), target, replace=False)
    put_reference_engine(target / "a_tensorrt_llm", repository, tiny_model_dir)
    with TritonServer(target, model_dir=None, engine=None, log_path=folder / "triton.log") as server:
        server.wait_ready([name for deployment in deployments for name in configurations(deployment)])
        yield server, file


def test_every_way_gives_the_same_text(served: tuple[TritonServer, Path]) -> None:
    client = Kserve(served[0].grpc_url)
    try:
        texts = {}
        for model in ("a_ensemble", "a_tensorrt_llm_bls", "b_ensemble", "b_tensorrt_llm_bls"):
            whole = "".join(answer.text for answer in client.stream(model, **PROMPT, stream=False))
            streamed = client.stream(model, **PROMPT, stream=True)
            assert "".join(answer.text for answer in streamed) == whole, model
            assert not [answer.error for answer in streamed if answer.error]
            assert len(streamed) > 2
            texts[model] = whole
        assert len(set(texts.values())) == 1, texts
        assert texts["a_ensemble"]
    finally:
        client.close()


async def test_the_gateway_reaches_each_by_token_ids(served: tuple[TritonServer, Path]) -> None:
    for prefix in ("a_", "b_"):
        async with TritonBackend(served[0].grpc_url, f"{prefix}ensemble") as backend:
            await backend.wait_ready(30)
            features = backend.engine.features
            assert (features.path, features.model) == ("tokens", f"{prefix}tensorrt_llm")


async def test_a_prompt_table_travels_as_the_model_declares_it(served: tuple[TritonServer, Path]) -> None:
    """FP32 at the one, FP16 at the other: the engine computes the same of both."""
    rows = np.random.default_rng(0).normal(size=(3, 64)).astype("<f2")
    table = PromptTable(Matrix(rows.tobytes(), *rows.shape), 1)
    greedy, request = SamplingParams(seed=1, temperature=0.0), Prompt("", (5, 6))
    answers = []
    for model, prompt_table in (("a_ensemble", table), ("b_ensemble", table), ("b_ensemble", None)):
        async with TritonBackend(served[0].grpc_url, model) as backend:
            await backend.wait_ready(30)
            asked = generation_request(
                f"{model}-{len(answers)}", request, 8, greedy, prompt_table=prompt_table, vocab_size=VOCAB_SIZE
            )
            answers.append([token async for chunk in backend.engine.generate(asked) for token in chunk.ids])
    assert answers[0] == answers[1] != answers[2]


def test_the_reference_engine_takes_its_length_from_the_repository(served: tuple[TritonServer, Path]) -> None:
    client = Kserve(served[0].grpc_url)
    try:
        prompt = list(range(5, 55))
        asked = {"input_ids": prompt, "input_lengths": len(prompt), "request_output_len": 50}
        (answer,) = client.stream("b_tensorrt_llm", **asked, exclude_input_in_output=True)
        assert len(answer.ids) == LONGEST - len(prompt)
        too_long = {"input_ids": prompt * 2, "input_lengths": 2 * len(prompt), "request_output_len": 50}
        (rejected,) = client.stream("b_tensorrt_llm", **too_long)
        assert "exceeds maximum input length" in rejected.error
    finally:
        client.close()


async def test_a_running_server_is_compared_with_the_file(served: tuple[TritonServer, Path], repository: Path) -> None:
    server, file = served
    deployments, _ = validate_deployments(read_document(file))
    ours = render(deployments, repository).configs
    theirs = await read_configurations(server.grpc_url, [*ours, "nobody"])
    changed = {found.model for found in differences(ours, theirs)}
    assert changed == {"a_tensorrt_llm"}  # where the reference engine was put


def test_the_command_says_how_a_running_server_differs(served: tuple[TritonServer, Path]) -> None:
    server, file = served
    command = ["repo", file, "--diff", f"grpc://{server.grpc_url}"]
    done = WarmGateways.of_this_process().run(command, os.environ)
    assert done.returncode == 1
    assert "a_tensorrt_llm: backend: tensorrtllm rendered, python there\n" in done.stdout
    assert "b_tensorrt_llm:" not in done.stdout
