"""The sizes in a ``config.json``, and the parameters that follow from them."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from gateway_ops.engines.weights import Weights

_MOST = 2**31 - 1  # of any single size
_SIZES = (
    *("hidden_size", "n_embd", "num_hidden_layers", "n_layer", "num_attention_heads", "n_head"),
    *("num_key_value_heads", "head_dim", "intermediate_size", "n_inner", "vocab_size"),
    *("max_position_embeddings", "n_positions", "kv_lora_rank", "qk_rope_head_dim"),
)
# The names of ChatGLM and GLM-4.
_OTHER_NAMES = {
    "num_layers": "num_hidden_layers",
    "padded_vocab_size": "vocab_size",
    "multi_query_group_num": "num_key_value_heads",
    "kv_channels": "head_dim",
    "ffn_hidden_size": "intermediate_size",
    "seq_length": "max_position_embeddings",
}
_UNGATED = ("phi", "starcoder2", "nemotron", "gpt_neox", "gptj", "bloom", "falcon", "opt", "mpt")
_TIED = ("gemma", "gemma2", "gemma3_text", "cohere", "cohere2", "gpt2", "starcoder2")  # transformers' defaults
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def whole_number(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of several keys with a number above zero; None without one."""
    return next((config[name] for name in names if type(config.get(name)) is int and 0 < config[name] <= _MOST), None)


def usual_names(config: dict[str, Any]) -> dict[str, Any]:
    """Rename the keys of a configuration to the usual names."""
    if config.get("model_type") != "chatglm":
        return config
    return {usual: config[other] for other, usual in _OTHER_NAMES.items() if other in config} | config


def odd_sizes(config: Mapping[str, Any]) -> str | None:
    """Name a size that no model can have; None without one."""
    for name in _SIZES:
        value = config.get(name)
        if value is not None and whole_number(config, name) is None:
            return f"config.json has {name} {reprlib.repr(value)}, which is not a model size"
    hidden, heads = whole_number(config, "hidden_size", "n_embd"), whole_number(config, "num_attention_heads", "n_head")
    if hidden is not None and heads is not None and heads > hidden:
        return f"config.json has {heads} attention heads and a hidden size of {hidden}"
    return None


def type_of(config: Mapping[str, Any]) -> str:
    """The ``model_type``, safe to print."""
    kind = config.get("model_type", "no model_type")
    return kind if isinstance(kind, str) and kind.isprintable() else "an odd model_type"


def kv_heads_of(config: Mapping[str, Any], heads: int) -> int:
    """The number of heads of keys and values: grouped, one for all, or as many as heads."""
    shared = config.get("multi_query", config.get("model_type") == "gpt_bigcode") is True
    return whole_number(config, "num_key_value_heads") or (1 if shared else heads)


def latent_of(config: Mapping[str, Any]) -> int:
    """The numbers per token and layer that latent attention (MLA) stores; 0 for other kinds of attention."""
    rank = whole_number(config, "kv_lora_rank")
    return rank + (whole_number(config, "qk_rope_head_dim") or 0) if rank is not None else 0


def shaped_weights(config: dict[str, Any], bits: float | None = None) -> Weights | None:
    """Count the parameters that a decoder's ``config.json`` implies; None for an unknown form.

    Known are GPT-2's form, and the one of Llama with its kin: grouped heads, latent attention, gated layers, experts.

    Args:
        config: configuration of the model, or of its text part.
        bits: bits of a parameter in a quantised source (`source_format`); None where it is not quantised.
    """
    if "n_embd" in config:
        return _gpt2(config)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    hidden, layers, heads, inner, vocab = (whole_number(config, name) or 0 for name in names)
    if 0 in (hidden, layers, heads, inner, vocab):
        return None
    kind, kv = config.get("model_type"), kv_heads_of(config, heads)
    head_dim = whole_number(config, "head_dim") or hidden // heads
    attention = layers * (_latent_attention(config, hidden, heads) or 2 * hidden * head_dim * (heads + kv))
    sparse, expert, router = _experts(config, hidden, layers, inner)
    dense_inner = whole_number(config, "intermediate_size_mlp") or inner
    dense = (layers - sparse) * (2 if kind in _UNGATED else 3) * hidden * dense_inner
    rest = layers * 2 * hidden + sparse * router + hidden
    if kind == "qwen2" or config.get("attention_bias") is True:
        rest += layers * head_dim * (heads + 2 * kv)
    tied = config.get("tie_word_embeddings", kind in _TIED)
    head = 0 if tied else vocab * hidden
    found = Weights(attention + dense + sparse * expert, vocab * hidden, head, rest)
    return found if bits is None else _quantised(found, sparse * expert if bits == MXFP4 else found.linear, bits)


MXFP4 = 4.25
"""Bits of a parameter in MXFP4: 4, and a scale of 8 for each 32. Models in it have their experts alone in it."""


def _quantised(weights: Weights, packed: int, bits: float) -> Weights:
    stored = int(packed * bits / 8) + 2 * (weights.total - packed)
    return Weights(weights.linear, weights.embedding, weights.head, weights.rest, stored, quantised=True)


def _latent_attention(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    """Parameters of a layer's latent attention, as DeepSeek V2 and V3 have it; 0 for other kinds."""
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    rank, plain, turned, value = (whole_number(config, name) or 0 for name in names)
    if 0 in (rank, plain, turned, value):
        return 0
    queries, query_rank = heads * (plain + turned), whole_number(config, "q_lora_rank")
    query = hidden * queries if query_rank is None else query_rank * (hidden + queries)
    return query + hidden * (rank + turned) + rank * heads * (plain + value) + heads * value * hidden


def _experts(config: Mapping[str, Any], hidden: int, layers: int, inner: int) -> tuple[int, int, int]:
    """Layers with experts, the parameters of the experts of one, and those of its router; zeros without experts."""
    count = whole_number(config, *_EXPERTS) or 0
    if not count:
        return 0, 0, 0
    inner = whole_number(config, "moe_intermediate_size") or inner
    shared = whole_number(config, "shared_expert_intermediate_size") or 0
    shared += inner * (whole_number(config, "n_shared_experts") or (config.get("model_type") == "llama4_text"))
    step = whole_number(config, "interleave_moe_layer_step", "decoder_sparse_step") or 1
    sparse = max(0, layers - (whole_number(config, "first_k_dense_replace") or 0)) // step
    return sparse, 3 * hidden * (count * inner + shared), hidden * count


def _gpt2(config: Mapping[str, Any]) -> Weights | None:
    names = ("n_embd", "n_layer", "n_head", "vocab_size", "n_positions")
    hidden, layers, heads, vocab, places = (whole_number(config, name) or 0 for name in names)
    if 0 in (hidden, layers, heads, vocab, places):
        return None
    inner = whole_number(config, "n_inner") or 4 * hidden
    cached = kv_heads_of(config, heads) * (hidden // heads)  # columns of keys, and of values
    linear = layers * (2 * hidden * (hidden + cached) + 2 * hidden * inner)
    rest = layers * (7 * hidden + 2 * cached + inner) + 2 * hidden + places * hidden
    return Weights(linear, vocab * hidden, 0, rest)
