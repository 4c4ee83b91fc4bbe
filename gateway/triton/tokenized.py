"""Tokenizes a few sentences by Triton's own tokenizer, its ``preprocessing`` model."""

from __future__ import annotations

import struct
import uuid

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError
from gateway.generation.tokenizing import SENTENCES, TokenizedSentences
from gateway.triton.connection import Connection
from gateway.triton.model_view import ModelView
from gateway.triton.response_stream import ResponseStream

_TIMEOUT_S = 2.0
_INPUTS = {"QUERY", "REQUEST_OUTPUT_LEN"}
_END = "OUT_END_ID"


async def tokenize_there(connection: Connection, preprocessing: ModelView | None) -> TokenizedSentences | None:
    """Tokenize the sentences; None where the model is not TensorRT-LLM's, or does not respond in time."""
    if preprocessing is None or not preprocessing.inputs >= _INPUTS or "INPUT_ID" not in preprocessing.outputs:
        return None
    try:
        found = [await _ask(connection, preprocessing, sentence) for sentence in SENTENCES]
    except (EngineError, struct.error):
        return None
    if not all(ids for ids, _ in found):
        return None
    return TokenizedSentences(tuple(ids for ids, _ in found), found[0][1])


async def _ask(connection: Connection, model: ModelView, text: str) -> tuple[tuple[int, ...], int | None]:
    """The ids of a text, and the id that ends an answer."""
    data, shape = text.encode(), [1, 1] if model.batched else [1]
    request = service_pb2.ModelInferRequest(model_name=model.name, id=f"probe-{uuid.uuid4()}")
    for name, datatype, raw in (
        ("QUERY", "BYTES", struct.pack("<I", len(data)) + data),
        ("REQUEST_OUTPUT_LEN", "INT32", struct.pack("<i", 1)),
    ):
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(raw)
    stream = ResponseStream(connection.transport.infer(request, timeout=_TIMEOUT_S))
    try:
        response = await stream.read()
    finally:
        stream.close()
    found: dict[str, tuple[int, ...]] = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
        if output.datatype == "INT32":
            found[output.name] = struct.unpack(f"<{len(raw) // 4}i", raw)
    return found.get("INPUT_ID", ()), next(iter(found.get(_END, ())), None)
