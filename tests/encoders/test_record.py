"""Recordings of requests to encoders: vectors are as revealing as the texts that they are of."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from gateway_ops.record.any_call import AnyCallServer
from gateway_ops.record.messages import read, redacted
from gateway_ops.record.recorder import Recorder
from gateway_ops.record.recording import RecordingWriter, read_recording
from gateway_ops.record.replayed_triton import ReplayedTriton
from tests.doubles.encoders.encoder_server import EncoderServer
from tests.encoders.conftest import serving

ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("nim", "/v1/embeddings", {"input": ["a secret", "and one more"], "input_type": "query"}),
    ("vllm", "/v1/embeddings", {"input": "a secret"}),
    ("jina_v3", "/v1/embeddings", {"input": ["a secret", "and one more"]}),
    ("minilm", "/v1/embeddings", {"input": ["a secret", "and one more"], "encoding_format": "base64"}),
    ("cross", "/v1/rerank", {"query": "which secret?", "documents": ["a secret", "and one more"]}),
    ("classes", "/v1/classify", {"input": ["a secret", "and one more"]}),
]

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.mark.parametrize("name", ["embedding", "sentence_embedding", "EMBEDDINGS", "last_hidden_state"])
def test_redacted_vectors_say_nothing_and_can_be_replayed(name: str) -> None:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.outputs.add(name=name, datatype="FP32", shape=[1, 3])
    message.infer_response.raw_output_contents.append(struct.pack("<3f", 0.5, -0.25, 0.0))
    form = read(METHOD, message.SerializeToString(), answer=True)
    assert form["tensors"] == {name: [0.5, -0.25, 0.0]}
    assert redacted(form)["tensors"] == {name: [1.0, 1.0, 1.0]}


@contextlib.asynccontextmanager
async def _recorded(url: str, file: Path, *, redact: bool) -> AsyncIterator[str]:
    with RecordingWriter(file, "0", redact=redact, most_bytes=10**7) as writer:
        recorder = Recorder(url, writer)
        async with AnyCallServer("127.0.0.1:0", recorder.serve) as server:
            yield f"127.0.0.1:{server.port}"
        await recorder.close()


@contextlib.asynccontextmanager
async def _replayed(file: Path) -> AsyncIterator[str]:
    hidden, calls = read_recording(file)
    triton = ReplayedTriton(calls, redacted=hidden, at_once=True, tell=pytest.fail)
    async with AnyCallServer("127.0.0.1:0", triton.serve) as server:
        yield f"127.0.0.1:{server.port}"


async def _answer(encoders: EncoderServer, name: str, url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    model = encoders.model(name)
    model["triton"] = {"url": url, "model": name}
    async with serving(model) as gateway:
        answer = await gateway.client.post(path, json={"model": name, **body})
    assert answer.status_code == 200, answer.text
    return {name: value for name, value in answer.json().items() if name not in {"id", "created"}}


@pytest.mark.parametrize(("name", "path", "body"), ASKED)
@pytest.mark.parametrize("redact", [False, True])
async def test_requests_to_encoders_are_replayed(
    encoders: EncoderServer, tmp_path: Path, name: str, path: str, body: dict[str, Any], *, redact: bool
) -> None:
    """Alike to the bit; a redacted recording has no word of them, and as many tokens, vectors and scores."""
    file = tmp_path / "recording"
    async with _recorded(encoders.url(name), file, redact=redact) as url:
        said = await _answer(encoders, name, url, path, body)
    async with _replayed(file) as url:
        again = await _answer(encoders, name, url, path, body)
    assert ("secret" in file.read_text()) is (name != "jina_v3" and not redact)
    if not redact:
        assert again == said
        return
    assert again["usage"] == said["usage"]
    key = "results" if path == "/v1/rerank" else "data"
    assert len(again[key]) == len(said[key])
