"""Writes sampling and ends as tensors that avoid the engine's traps (wire contract 2.1)."""

from __future__ import annotations

from array import array

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.triton.abilities import Abilities
from gateway.triton.error_mapping import UNSUPPORTED, unsupported
from gateway.triton.parameters import INPUTS
from gateway.triton.tensors.request_encoder import RequestEncoder


def put_sampling(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, params: SamplingParams) -> None:
    """Add the sampling tensors except the seed.

    Greedy is ``top_k`` 1 and nothing else: the engine turns temperature 0 with ``top_p`` into random params.
    Otherwise ``top_p`` always travels: without it and ``top_k`` the engine is greedy at any temperature.

    Args:
        encoder: encoder of the model.
        wire: the request to add to.
        params: of the answer.

    Raises:
        EngineError: the model lacks a tensor that the request cannot do without.
    """
    if params.greedy:
        if not encoder.put(wire, encoder.tensor("top_k"), 1):
            raise unsupported("temperature", encoder.model.name, "temperature 0")
    else:
        most = INPUTS["top_k"].limit
        if most is not None and params.top_k > most:
            message, code = f"top_k must be at most {most}.", "integer_above_max_value"
            raise EngineError(ErrorKind.INVALID_REQUEST, message, param="top_k", code=code)
        encoder.send(wire, "top_p", params.top_p)
        # 1 is the engine's default.
        if params.temperature != 1.0 or encoder.declares(encoder.tensor("temperature")):
            encoder.send(wire, "temperature", params.temperature)
        if params.top_k > 0:
            encoder.send(wire, "top_k", params.top_k)
    for name, each in INPUTS.items():
        if each.neutral is not None and not each.trap and (value := getattr(params, name)) != each.neutral:
            encoder.send(wire, name, value)


def put_end_id(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, end_ids: tuple[int, ...]) -> None:
    """Add ``end_id`` and ``pad_id``: the first end id, or -1 for none."""
    end_id = end_ids[0] if end_ids else -1
    encoder.put(wire, "end_id", end_id)
    encoder.put(wire, "pad_id", end_id)


def put_parameters(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> None:
    """Add what the dialects of TensorRT-LLM send alike, and ask for the outputs that come for it.

    Raises:
        EngineError: the model has no tensor for something that is asked for.
    """
    put_end_id(encoder, wire, request.end_ids)
    put_sampling(encoder, wire, request.params)
    put_guide(encoder, wire, request, abilities)
    put_lora(encoder, wire, request)
    put_cache_salt(encoder, wire, request)
    put_draft(encoder, wire, request)
    put_draft_model(encoder, wire, request)
    put_beams(encoder, wire, request, abilities)
    for name in put_returns(encoder, wire, request, abilities):
        wire.outputs.add(name=name)


def put_beams(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> None:
    """Add the beam search, whose best beam is the answer.

    Args:
        encoder: encoder of the model.
        wire: the request to add to.
        request: the request.
        abilities: abilities of the model.

    Raises:
        EngineError: more beams than the engine has, or no tensor for the length penalty.
    """
    if request.params.beam_width <= 1:
        return
    if request.params.beam_width > abilities.beams:
        message = (
            f"This model's engine supports at most {abilities.beams} beams."
            if abilities.beams > 1
            else "This model's engine does not support beam search."
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
        EngineError: the model has no such tensor, the width is not known, or an id is outside of the width.
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
                f"logit_bias: {token} is not a token id of this model; its vocabulary has {width} tokens.",
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
    """Add the guide of the answer (wire contract 2.7); a guide of the kind ``json`` has no text.

    Raises:
        EngineError: the engine has no guides of this kind, or the request uses beam search. TensorRT-LLM would
            silently ignore the guide in both cases.
    """
    guide = request.params.guide
    if guide is None:
        return
    if request.params.beam_width > 1:
        message = "Guided decoding cannot be used with beam search."
        raise EngineError(ErrorKind.INVALID_REQUEST, message, param="guide", code=UNSUPPORTED)
    if guide.kind not in abilities.guide_types:
        raise unsupported("guide", encoder.model.name, f"Guided decoding by {guide.kind}")
    encoder.put(wire, "guided_decoding_guide_type", guide.kind)
    if guide.kind != "json":
        encoder.put(wire, "guided_decoding_guide", guide.text)


def put_lora(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
    """Add the adapter: its task id, and its weights and configuration where they go with it.

    Raises:
        EngineError: the model has no such tensors.
    """
    lora = request.lora
    if lora is None:
        return
    if not encoder.put(wire, "lora_task_id", lora.task_id):
        raise unsupported("model", encoder.model.name, "LoRA")
    if lora.weights is not None and lora.config is not None:
        encoder.put_raw(wire, "lora_weights", lora.weights.values, shape=lora.weights.shape)
        encoder.put_raw(wire, "lora_config", lora.config.values, shape=lora.config.shape)


def put_cache_salt(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
    """Add the salt of the request's KV blocks.

    Raises:
        EngineError: the model has no such tensor.
    """
    if request.params.cache_salt and not encoder.put(wire, "cache_salt", request.params.cache_salt):
        raise unsupported("cache_salt", encoder.model.name)


def put_prompt_table(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> tuple[int, ...]:
    """Add the prompt table.

    Each virtual token carries the table's extra id, the others 0: TensorRT-LLM rejects tables without extra ids
    where KV-cache blocks are reused, since all tables have the same token ids.

    Returns:
        The ids of its virtual tokens, which go before the prompt: those that follow the vocabulary.

    Raises:
        EngineError: the model has no such tensors, or the size of the vocabulary is not known.
    """
    table = request.prompt_table
    if table is None:
        return ()
    vocab = abilities.vocab_size or request.vocab_size
    if not vocab or not encoder.declares("prompt_embedding_table"):
        raise unsupported("prompt_table", encoder.model.name)
    if request.params.prompt_logprobs is not None:
        message = "prompt_logprobs cannot be used with prompt_table."
        raise EngineError(ErrorKind.INVALID_REQUEST, message, param="prompt_logprobs", code=UNSUPPORTED)
    encoder.put_raw(wire, "prompt_embedding_table", table.embeddings.values, shape=table.embeddings.shape)
    encoder.put(wire, "prompt_vocab_size", table.length)
    encoder.put(wire, "prompt_table_extra_ids", *[table.extra_id] * table.length, *[0] * len(request.prompt.ids))
    return tuple(range(vocab, vocab + table.length))


def put_draft(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
    """Add the request's own draft, as much of it as may be sent.

    Raises:
        EngineError: the model takes none.
    """
    sent = request.draft[: request.draft_limit]
    if sent:
        encoder.send(wire, "prediction", *sent)


def put_draft_model(encoder: RequestEncoder, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
    """Set the inputs by which a BLS model uses its draft model.

    Raises:
        EngineError: the model has none.
    """
    if not request.num_draft_tokens:
        return
    encoder.send(wire, "num_draft_tokens", request.num_draft_tokens)
    if request.use_draft_logits:
        encoder.put(wire, "use_draft_logits", True)


def put_returns(
    encoder: RequestEncoder,
    wire: service_pb2.ModelInferRequest,
    request: GenerationRequest,
    abilities: Abilities,
) -> list[str]:
    """Request log-probs, the finish reason and cached tokens, as needed and as the model can.

    Returns:
        The names of the requested outputs.

    Raises:
        EngineError: the request needs log-probs that the model does not have.
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
    """Tell whether the request's log-probs are computed from logits, all of them for one distribution.

    Raises:
        EngineError: the request needs alternatives that the model does not have.
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
            f"Log-probabilities of a prompt are limited to prompts of {most} tokens, but this prompt has "
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
