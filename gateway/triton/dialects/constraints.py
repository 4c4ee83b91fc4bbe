"""Tensors of bans, preferences and searches beyond sampling. Each is sent only when asked for."""

from __future__ import annotations

from array import array

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.triton.abilities import Abilities
from gateway.triton.dialects.encoder import RequestEncoder
from gateway.triton.errors import UNSUPPORTED, unsupported


def put_beams(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> None:
    """Add the beam search, of which the best beam is the answer.

    Args:
        encoder: encoder of the model.
        wire: the request to add to.
        request: what was asked for.
        abilities: what the model can do.

    Raises:
        EngineError: more beams than the engine has, or no tensor for the length penalty.
    """
    if request.params.beam_width <= 1:
        return
    if request.params.beam_width > abilities.beams:
        message = (
            f"This model's engine searches at most {abilities.beams} beams."
            if abilities.beams > 1
            else "This model's engine does not do beam search."
        )
        param = "best_of" if abilities.beams > 1 else "use_beam_search"
        raise EngineError(ErrorKind.INVALID_REQUEST, message, param=param, code=UNSUPPORTED)
    encoder.put(wire, "beam_width", request.params.beam_width)
    if request.params.length_penalty != 1.0:
        encoder.send(wire, "length_penalty", request.params.length_penalty)


def put_logit_bias(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> None:
    """Add the dense ``embedding_bias``, as wide as the engine's logits.

    The width is the engine's own where it says so, else that of the model's folder, which comes with the request.

    Raises:
        EngineError: the model has no such tensor, nobody knows the width, or an id is outside of it.
    """
    if not request.params.logit_bias:
        return
    width = abilities.vocab_size or request.vocab_size
    if not width or not encoder.declares("embedding_bias"):
        raise unsupported("logit_bias", encoder.model.name)
    bias = array("f", bytes(4 * width))
    for token, value in request.params.logit_bias.items():
        if not 0 <= token < width:
            raise EngineError(
                ErrorKind.INVALID_REQUEST,
                f"logit_bias: {token} is not a token id of this model, whose vocabulary has {width}.",
                param="logit_bias",
                code="invalid_value",
            )
        bias[token] = value
    encoder.put_raw(wire, "embedding_bias", bias.tobytes(), shape=(width,))


def put_guide(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> None:
    """Add what the answer is held to (wire contract 2.7). The kind ``json`` has no text.

    Raises:
        EngineError: the engine does not take guides of that kind: the C++ backend would ignore it in silence. Or beams
            are searched, to which TensorRT-LLM does not apply guides.
    """
    guide = request.params.guide
    if guide is None:
        return
    if request.params.beam_width > 1:
        message = "Guided decoding does not go together with beam search."
        raise EngineError(ErrorKind.INVALID_REQUEST, message, param="guide", code=UNSUPPORTED)
    if guide.kind not in abilities.guide_types:
        raise unsupported("guide", encoder.model.name, f"Guided decoding by {guide.kind}")
    encoder.put(wire, "guided_decoding_guide_type", guide.kind)
    if guide.kind != "json":
        encoder.put(wire, "guided_decoding_guide", guide.text)
