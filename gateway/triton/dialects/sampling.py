"""Sampling and ends, as tensors that avoid the engine's traps (wire contract 2.1)."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.sampling_params import SamplingParams
from gateway.triton.dialects.encoder import RequestEncoder
from gateway.triton.errors import unsupported
from gateway.triton.inputs import INPUTS

# Below it a temperature would divide logits beyond what FP32 holds, or be 0 on the wire, which the engine takes for 1.
_GREEDY_BELOW = 1e-5


def put_sampling(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, params: SamplingParams) -> None:
    """Add the sampling tensors but the seed.

    Greedy is ``top_k`` 1 and nothing else: the engine turns temperature 0 with ``top_p`` into random params.
    Otherwise ``top_p`` always travels: without it and ``top_k`` the engine is greedy at any temperature.

    Args:
        encoder: encoder of the model.
        wire: the request to add to.
        params: of the answer.

    Raises:
        EngineError: the model lacks a tensor that the request cannot do without.
    """
    if params.greedy or params.temperature < _GREEDY_BELOW:
        if not encoder.put(wire, encoder.tensor("top_k"), 1):
            raise unsupported("temperature", encoder.model.name, "temperature 0")
    else:
        most = INPUTS["top_k"].limit
        if most is not None and params.top_k > most:
            message, code = f"top_k must be at most {most}.", "integer_above_max_value"
            raise EngineError(ErrorKind.INVALID_REQUEST, message, param="top_k", code=code)
        encoder.send(wire, "top_p", params.top_p)
        encoder.send(wire, "temperature", params.temperature)
        if params.top_k > 0:
            encoder.send(wire, "top_k", params.top_k)
    for name, each in INPUTS.items():
        if each.off is not None and (value := getattr(params, name)) != each.off:
            encoder.send(wire, name, value)


def put_end_id(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, end_ids: tuple[int, ...]) -> None:
    """Add ``end_id`` and ``pad_id``: the first end id, or -1, which ends at none."""
    end_id = end_ids[0] if end_ids else -1
    encoder.put(wire, "end_id", end_id)
    encoder.put(wire, "pad_id", end_id)
