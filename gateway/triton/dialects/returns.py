"""Outputs that a request wants beyond tokens: the inputs that switch them on, and their names."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.triton.abilities import Abilities
from gateway.triton.dialects.encoder import RequestEncoder
from gateway.triton.errors import UNSUPPORTED, unsupported


def put_returns(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> list[str]:
    """Ask for log-probs, the finish reason and cached tokens, as wanted and as the model can.

    Returns:
        The outputs that come for it.

    Raises:
        EngineError: log-probs are wanted that the model does not have.
    """
    model = encoder.model
    outputs = []
    if uses_logits(request, abilities):
        encoder.put(wire, "return_generation_logits", True)
        outputs.append("generation_logits")
    elif request.params.logprobs:
        if abilities.logprobs is None or not encoder.put(wire, "return_log_probs", True):
            raise unsupported("logprobs", model.name)
        outputs.append("output_log_probs")
        if request.params.top_logprobs:
            encoder.put(wire, "num_top_log_probs", request.params.top_logprobs)
            outputs += ["top_log_probs_ids", "top_log_probs"]
    if request.params.prompt_logprobs is not None:
        outputs += _put_prompt_logprobs(encoder, wire, request, abilities)
    if request.cached_tokens and abilities.cached_tokens and encoder.put(wire, "return_perf_metrics", True):
        outputs.append("num_cached_tokens" if abilities.cached_tokens == "tokens" else "kv_cache_reused_blocks")
    if "finish_reason" in model.outputs and encoder.put(wire, "return_finish_reason", True):
        outputs.append("finish_reason")
    return outputs


def uses_logits(request: GenerationRequest, abilities: Abilities) -> bool:
    """Whether the request's log-probs are computed from logits: all of them then, so that they are of one distribution.

    Raises:
        EngineError: alternatives are wanted that the model does not have.
    """
    if request.params.top_logprobs and abilities.top_logprobs is None:
        message = "top_logprobs is not supported by this model."
        raise EngineError(ErrorKind.INVALID_REQUEST, message, param="top_logprobs", code=UNSUPPORTED)
    source = abilities.top_logprobs if request.params.top_logprobs else abilities.logprobs
    return request.params.logprobs and source == "logits"


def _put_prompt_logprobs(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> list[str]:
    if abilities.prompt_logprobs is None:
        raise unsupported("prompt_logprobs", encoder.model.name)
    most = abilities.prompt_logprobs_tokens
    if most is not None and len(request.prompt.ids) > most:
        raise EngineError(
            ErrorKind.INVALID_REQUEST,
            f"Log-probabilities of a prompt are limited to prompts of {most} tokens here, but this one has "
            f"{len(request.prompt.ids)}.",
            param="prompt_logprobs",
        )
    if abilities.prompt_logprobs == "logits":
        encoder.put(wire, "return_context_logits", True)
        return ["context_logits"]
    encoder.put(wire, "num_prompt_log_probs", request.params.prompt_logprobs or 0)
    outputs = ["prompt_log_probs"]
    if "prompt_log_probs_ranks" in encoder.model.outputs:
        outputs.append("prompt_log_probs_ranks")
    if request.params.prompt_logprobs:
        outputs += ["prompt_top_log_probs_ids", "prompt_top_log_probs"]
    return outputs
