"""The tensors of speculative decoding: a request's own draft, or a draft model's (wire contract 1.3 and 1.6)."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.generation.request import GenerationRequest
from gateway.triton.dialects.encoder import RequestEncoder


def put_draft(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
    """Add the request's own draft, as much of it as may be sent.

    Raises:
        EngineError: the model takes none.
    """
    sent = request.draft[: request.draft_limit]
    if sent:
        encoder.send(wire, "prediction", *sent)


def put_draft_model(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
    """Let the draft model of a BLS model guess.

    Raises:
        EngineError: the model has none.
    """
    if not request.num_draft_tokens:
        return
    encoder.send(wire, "num_draft_tokens", request.num_draft_tokens)
    if request.use_draft_logits:
        encoder.put(wire, "use_draft_logits", True)
