"""Sampling and ends, as tensors that avoid the engine's traps (wire contract 2.1)."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.sampling_params import SamplingParams
from gateway.triton.dialects.encoder import RequestEncoder
from gateway.triton.errors import unsupported

MAX_TOP_K = 1024
# Below it a temperature would divide logits beyond what FP32 holds, or be 0 on the wire, which the engine takes for 1.
_GREEDY_BELOW = 1e-5


def put_sampling(
    encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, params: SamplingParams, *, prefix: str = ""
) -> None:
    """Add the sampling tensors but the seed.

    Greedy is ``top_k`` 1 and nothing else: the engine turns temperature 0 with ``top_p`` into random params.
    Otherwise ``top_p`` always travels: without it and ``top_k`` the engine is greedy at any temperature.

    Args:
        encoder: encoder of the model.
        wire: the request to add to.
        params: of the answer.
        prefix: what the model's names of ``top_k`` and ``top_p`` begin with.

    Raises:
        EngineError: the model lacks a tensor that the request cannot do without.
    """
    model = encoder.model.name
    if params.greedy or params.temperature < _GREEDY_BELOW:
        if not encoder.put(wire, f"{prefix}top_k", 1):
            raise unsupported("temperature", model, "temperature 0")
    else:
        if params.top_k > MAX_TOP_K:
            message, code = f"top_k must be at most {MAX_TOP_K}.", "integer_above_max_value"
            raise EngineError(ErrorKind.INVALID_REQUEST, message, param="top_k", code=code)
        if not encoder.put(wire, f"{prefix}top_p", params.top_p):
            raise unsupported("top_p", model)
        if not encoder.put(wire, "temperature", params.temperature):
            raise unsupported("temperature", model)
        if params.top_k > 0 and not encoder.put(wire, f"{prefix}top_k", params.top_k):
            raise unsupported("top_k", model)
    for name, value, off in (
        ("presence_penalty", params.presence_penalty, 0.0),
        ("frequency_penalty", params.frequency_penalty, 0.0),
        ("repetition_penalty", params.repetition_penalty, 1.0),
        ("min_p", params.min_p, 0.0),
    ):
        if value != off and not encoder.put(wire, name, value):
            raise unsupported(name, model)


def put_end_id(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, end_ids: tuple[int, ...]) -> None:
    """Add ``end_id`` and ``pad_id``: the first end id, or -1, which ends at none."""
    end_id = end_ids[0] if end_ids else -1
    encoder.put(wire, "end_id", end_id)
    encoder.put(wire, "pad_id", end_id)
