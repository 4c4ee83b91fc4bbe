"""Converts a GGUF file to a Hugging Face style folder, for models of the Llama architecture.

Weights are written in float32: float16 would move top-5 log-probs by up to 0.005, and the values of a quantised file
are not float16 numbers (scale times integer plus minimum).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from gateway_ops.local_stack.gguf import FloatArray, GgufError, GgufFile

_CONTROL_TOKEN: Final = 3  # llama.cpp's token type for tokens such as <|im_end|>

# Llama.cpp's names and the ones of Hugging Face, per layer and outside the layers.
_LAYER_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def unpermute(weight: FloatArray, heads: int) -> FloatArray:
    """Undo llama.cpp's reordering of query and key rows.

    llama.cpp rotates neighbouring pairs (0, 1), (2, 3), ...; Hugging Face rotates row i with row i + head_dim / 2.

    Args:
        weight: float32 (heads * head_dim, hidden), rows in llama.cpp's interleaved order.
        heads: query heads for q, key-value heads for k.

    Returns:
        float32 of the same shape, rows of each head in half-rotated order.
    """
    rows, hidden = weight.shape
    half = rows // heads // 2
    return weight.reshape(heads, half, 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


def write_folder(gguf: GgufFile, folder: Path, chat_template: str, eos_token_ids: Sequence[int]) -> None:
    """Write config, weights, tokenizer and chat template.

    Args:
        gguf: a Llama-architecture model with a byte-level BPE tokenizer.
        folder: an existing folder.
        chat_template: Jinja source.
        eos_token_ids: ids that end an answer, the main one first.

    Raises:
        GgufError: another architecture or tokenizer, or something needed is missing.
        OSError: the folder cannot be written.
    """
    try:
        config = llama_config(gguf, eos_token_ids)
        tokenizer = build_tokenizer(gguf)
        tokens = _tokenizer_config(gguf)
    except KeyError as error:
        raise GgufError(f"the GGUF file has no key {error}") from None
    generation = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", generation)
    _write_json(folder / "tokenizer_config.json", tokens)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    _write_safetensors(folder / "model.safetensors", gguf)


def llama_config(gguf: GgufFile, eos_token_ids: Sequence[int]) -> dict[str, Any]:
    """Make the fields of ``config.json`` (Hugging Face's LlamaForCausalLM).

    Raises:
        GgufError: another architecture, or scaled rotary embeddings.
        KeyError: a needed key is missing.
    """
    meta = gguf.metadata
    if meta["general.architecture"] != "llama":
        raise GgufError(f"the architecture is {meta['general.architecture']!r}, only 'llama' is supported")
    if "rope_freqs.weight" in gguf.tensors or "llama.rope.scaling.type" in meta:
        raise GgufError("the GGUF file scales its rotary embeddings, which this export does not support")
    hidden, heads = int(meta["llama.embedding_length"]), int(meta["llama.attention.head_count"])
    eos: int | list[int] = list(eos_token_ids) if len(eos_token_ids) > 1 else eos_token_ids[0]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(meta.get("llama.attention.key_length", hidden // heads)),
        "hidden_act": "silu",
        "max_position_embeddings": int(meta["llama.context_length"]),
        "rms_norm_eps": _shortest(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _shortest(meta.get("llama.rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "bos_token_id": int(meta["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": eos,
        "pad_token_id": int(meta["tokenizer.ggml.padding_token_id"]),
        "torch_dtype": "float32",
    }


def build_tokenizer(gguf: GgufFile) -> Tokenizer:
    """Build the byte-level BPE tokenizer from the file's vocabulary and merges.

    Raises:
        GgufError: the file's tokenizer is of another kind.
        KeyError: a needed key is missing.
    """
    meta = gguf.metadata
    model, pre = meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]
    if (model, pre) != ("gpt2", "smollm"):
        raise GgufError(
            f"the tokenizer is {model!r} with pre-tokenizer {pre!r}, only 'gpt2' with 'smollm' is supported"
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in meta["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, meta["tokenizer.ggml.token_type"], strict=True)
            if kind == _CONTROL_TOKEN
        ]
    )
    return tokenizer


def _tokenizer_config(gguf: GgufFile) -> dict[str, Any]:
    meta = gguf.metadata
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
        "add_bos_token": bool(meta.get("tokenizer.ggml.add_bos_token", False)),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(meta["llama.context_length"]),
    }


def _shortest(value: float) -> float:
    # GGUF stores float32: 1e-05 comes out as 9.999999747378752e-06.
    return float(str(np.float32(value)))


def _weights(gguf: GgufFile) -> Iterator[tuple[str, str]]:
    # Pairs: a name in the GGUF file, and its name in the folder.
    for name in gguf.tensors:
        if name in _TOP_NAMES:
            yield name, _TOP_NAMES[name]
            continue
        part, layer, kind, suffix = (name.split(".") + [""] * 4)[:4]
        if part != "blk" or suffix != "weight" or kind not in _LAYER_NAMES:
            raise GgufError(f"tensor {name!r} does not belong to a Llama model without biases")
        yield name, f"model.layers.{layer}.{_LAYER_NAMES[kind]}.weight"


def _write_safetensors(path: Path, gguf: GgufFile) -> None:
    # Written tensor by tensor, because the library's writer wants all of them in memory, twice.
    names = list(_weights(gguf))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for source, target in names:
        shape = gguf.tensors[source].shape
        begin, end = end, end + 4 * int(np.prod(shape))
        header[target] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    heads = int(gguf.metadata["llama.attention.head_count"])
    kv_heads = int(gguf.metadata.get("llama.attention.head_count_kv", heads))
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for source, _ in names:
            weight = gguf.tensor(source)
            if source.endswith(("attn_q.weight", "attn_k.weight")):
                weight = unpermute(weight, heads if source.endswith("attn_q.weight") else kv_heads)
            out.write(np.ascontiguousarray(weight, "<f4").data)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
