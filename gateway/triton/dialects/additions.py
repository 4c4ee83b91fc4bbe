"""The tensors of adapters, of prompt tables and of the KV cache's salt (wire contract 1.3 and 2.8)."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.triton.abilities import Abilities
from gateway.triton.dialects.encoder import RequestEncoder
from gateway.triton.errors import UNSUPPORTED, unsupported


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
    """Add the salt of its KV blocks.

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

    Each virtual token carries the table's extra id, the others 0: TensorRT-LLM refuses tables without them where it
    reuses KV-cache blocks, since all tables have the same token ids.

    Returns:
        The ids of its virtual tokens, which go before the prompt: those that follow the vocabulary.

    Raises:
        EngineError: the model has no such tensors, or nobody knows the size of the vocabulary.
    """
    table = request.prompt_table
    if table is None:
        return ()
    vocab = abilities.vocab_size or request.vocab_size
    if not vocab or not encoder.declares("prompt_embedding_table"):
        raise unsupported("prompt_table", encoder.model.name)
    if request.params.prompt_logprobs is not None:
        message = "prompt_logprobs does not go together with prompt_table."
        raise EngineError(ErrorKind.INVALID_REQUEST, message, param="prompt_logprobs", code=UNSUPPORTED)
    encoder.put_raw(wire, "prompt_embedding_table", table.embeddings.values, shape=table.embeddings.shape)
    encoder.put(wire, "prompt_vocab_size", table.length)
    encoder.put(wire, "prompt_table_extra_ids", *[table.extra_id] * table.length, *[0] * len(request.prompt.ids))
    return tuple(range(vocab, vocab + table.length))
