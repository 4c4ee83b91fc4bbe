"""Writes a tiny Llama model from a seed: under 1 MB, for tests and trials without a download."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "a"), ("o", "n"), ("e", "r"), ("Ġ", "s"))
VOCAB_SIZE = len(SPECIAL_TOKENS) + 256 + len(_MERGES)

_LAYERS, _HIDDEN, _HEADS, _KV_HEADS, _FFN = 2, 64, 4, 2, 128
_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def write_tiny_model(folder: Path, *, vocab: int = VOCAB_SIZE, max_position_embeddings: int = 2048) -> None:
    """Write a Llama model in Hugging Face style; the same arguments give the same bytes.

    Its weights are random, so its words mean nothing, but greedy text varies, holds broken and whole multi-byte
    characters, and ends by itself after some prompts.

    Args:
        folder: created where it is missing.
        vocab: rows of the embedding and of the logits, at least `VOCAB_SIZE`; surplus ids have no token.
        max_position_embeddings: context length in tokens.

    Raises:
        ValueError: ``vocab`` is smaller than the tokenizer.
    """
    if vocab < VOCAB_SIZE:
        raise ValueError(f"vocab must be at least {VOCAB_SIZE}")
    folder.mkdir(parents=True, exist_ok=True)
    _build_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    for name, value in _configs(vocab, max_position_embeddings).items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    save_file(_make_weights(vocab), folder / "model.safetensors", metadata={"format": "pt"})


def _build_tokenizer() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*SPECIAL_TOKENS, *letters, *(a + b for a, b in _MERGES)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=list(_MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _configs(vocab: int, max_position_embeddings: int) -> dict[str, dict[str, object]]:
    end_of_text, im_start, im_end = range(3)
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": vocab,
            "hidden_size": _HIDDEN,
            "intermediate_size": _FFN,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _KV_HEADS,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "max_position_embeddings": max_position_embeddings,
            "tie_word_embeddings": False,
            "bos_token_id": im_start,
            "eos_token_id": im_end,
            "torch_dtype": "float32",
        },
        "generation_config.json": {"bos_token_id": im_start, "eos_token_id": [im_end, end_of_text]},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|im_end|>",
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": max_position_embeddings,
        },
    }


def _make_weights(vocab: int) -> dict[str, NDArray[np.float32]]:
    """Make weights so large that every step depends on all of the past: small ones repeat one letter for ever."""
    rng = np.random.default_rng(0)
    kv_width = _HIDDEN * _KV_HEADS // _HEADS

    def matrix(rows: int, columns: int, gain: float) -> NDArray[np.float32]:
        return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(gain / columns**0.5)

    ones = np.ones(_HIDDEN, np.float32)
    weights = {
        "model.embed_tokens.weight": matrix(vocab, _HIDDEN, 8.0),
        "model.norm.weight": ones,
        "lm_head.weight": matrix(vocab, _HIDDEN, 4.0),
    }
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {
            f"{prefix}input_layernorm.weight": ones,
            f"{prefix}post_attention_layernorm.weight": ones,
            f"{prefix}self_attn.q_proj.weight": matrix(_HIDDEN, _HIDDEN, 1.0),
            f"{prefix}self_attn.k_proj.weight": matrix(kv_width, _HIDDEN, 1.0),
            f"{prefix}self_attn.v_proj.weight": matrix(kv_width, _HIDDEN, 2.0),
            f"{prefix}self_attn.o_proj.weight": matrix(_HIDDEN, _HIDDEN, 2.0),
            f"{prefix}mlp.gate_proj.weight": matrix(_FFN, _HIDDEN, 2.0),
            f"{prefix}mlp.up_proj.weight": matrix(_FFN, _HIDDEN, 2.0),
            f"{prefix}mlp.down_proj.weight": matrix(_HIDDEN, _FFN, 2.0),
        }
    return weights
