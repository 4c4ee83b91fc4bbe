"""What the gateway says of a real Triton that it cannot serve, and that it begins once Triton has another model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as triton_client

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton import TritonBackend
from gateway_ops.check.endpoint import describe_triton
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.waiting import until

OTHER = """backend: "python"
input { name: "image" data_type: TYPE_FP32 dims: 3 }
output { name: "labels" data_type: TYPE_STRING dims: 1 }
instance_group { count: 1 kind: KIND_CPU }
"""
UNDECLARED = 'backend: "python"\ninstance_group { count: 1 kind: KIND_CPU }\n'
ENGINE = """backend: "python"
model_transaction_policy { decoupled: true }
input { name: "input_ids" data_type: TYPE_INT32 dims: -1 }
input { name: "input_lengths" data_type: TYPE_INT32 dims: 1 }
input { name: "request_output_len" data_type: TYPE_INT32 dims: 1 }
input { name: "streaming" data_type: TYPE_BOOL dims: 1 optional: true }
output { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }
output { name: "sequence_length" data_type: TYPE_INT32 dims: -1 }
instance_group { count: 1 kind: KIND_CPU }
"""
MODEL = """class TritonPythonModel:
    def execute(self, requests):
        raise AssertionError("it is only loaded here")
"""
BROKEN = 'raise RuntimeError("no such engine")\n'
LOADED = ("other", "undeclared")


def write(folder: Path, name: str, config: str, code: str = MODEL) -> None:
    (folder / name / "1").mkdir(parents=True, exist_ok=True)
    (folder / name / "config.pbtxt").write_text(config)
    (folder / name / "1" / "model.py").write_text(code)


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A Triton with models that are not for the gateway."""
    folder = tmp_path_factory.mktemp("unservable")
    repository = folder / "repository"
    write(repository, "other", OTHER)
    write(repository, "undeclared", UNDECLARED)
    write(repository, "unloaded", ENGINE)
    write(repository, "broken", ENGINE, BROKEN)
    explicit = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in LOADED)]
    log = folder / "triton.log"
    with TritonServer(repository, model_dir=None, engine=None, log_path=log, options=explicit) as server:
        server.wait_ready(LOADED)
        yield server


def load(triton: TritonServer, model: str) -> None:
    client = triton_client.InferenceServerClient(triton.grpc_url)
    try:
        client.load_model(model)
    finally:
        client.close()


async def said(triton: TritonServer, model: str, words: str) -> ErrorKind:
    """Wait until readiness has these words; a check of this Triton has the same."""
    async with TritonBackend(triton.grpc_url, model) as backend:
        await until(lambda: words in backend.status.reason)
        with pytest.raises(EngineError) as error:
            _ = backend.engine
        (finding,), _ = await describe_triton(triton.grpc_url, model)
        assert finding.what.rstrip(".") == backend.status.reason.removesuffix(f" ({triton.grpc_url})")
        return error.value.kind


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("other", "is of an unsupported kind: its inputs are image and its outputs"),
        ("undeclared", "model 'undeclared' declares no tensors; supported are an ensemble or a BLS model"),
        (
            "ensemble",
            "which has 'broken', 'other', 'undeclared' and 'unloaded', but no ready model of a supported kind",
        ),
    ],
)
async def test_what_must_be_changed(triton: TritonServer, model: str, words: str) -> None:
    assert await said(triton, model, words) is ErrorKind.UNSERVABLE


async def test_what_is_there_and_not_ready(triton: TritonServer) -> None:
    assert await said(triton, "unloaded", "is not ready in Triton: it was not loaded") is ErrorKind.UNAVAILABLE
    with pytest.raises(triton_client.InferenceServerException):
        load(triton, "broken")
    assert await said(triton, "broken", "RuntimeError: no such engine") is ErrorKind.UNAVAILABLE


async def test_service_begins_when_the_repository_has_another_model(triton: TritonServer) -> None:
    write(triton.repository, "becomes", OTHER)
    load(triton, "becomes")
    async with TritonBackend(triton.grpc_url, "becomes") as backend:
        await until(lambda: "its inputs are image" in backend.status.reason)
        write(triton.repository, "becomes", ENGINE)
        load(triton, "becomes")
        await backend.wait_ready(10)
        assert backend.engine.features.model == "becomes"
        async with TritonBackend(triton.grpc_url, "ensemble") as unnamed:
            await until(lambda: "which has 'becomes' (engine); set triton.model to it" in unnamed.status.reason)
