"""Recordings of requests to encoders: vectors are as revealing as the texts that they are of."""

from __future__ import annotations

import struct

import pytest
from tritonclient.grpc import service_pb2

from gateway_ops.record.messages import read, redacted

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.mark.parametrize("name", ["embedding", "sentence_embedding", "EMBEDDINGS", "last_hidden_state"])
def test_redacted_vectors_say_nothing_and_can_be_replayed(name: str) -> None:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.outputs.add(name=name, datatype="FP32", shape=[1, 3])
    message.infer_response.raw_output_contents.append(struct.pack("<3f", 0.5, -0.25, 0.0))
    form = read(METHOD, message.SerializeToString(), answer=True)
    assert form["tensors"] == {name: [0.5, -0.25, 0.0]}
    assert redacted(form)["tensors"] == {name: [1.0, 1.0, 1.0]}
