"""A Hugging Face style folder from a small GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer, pre_tokenizers

from gateway_ops.local_stack.export import write_folder
from gateway_ops.local_stack.gguf import GgufError, GgufFile
from tests.gateway_ops.local_stack.gguf_bytes import ARRAY, F32, STRING, gguf_bytes

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN = 8, 2, 1, 4, 16
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "Ġhe"]
TEMPLATE = "{{ messages[0]['content'] }}"
U32, FLOAT = 4, 6


def metadata(**changed: tuple[int, Any]) -> list[tuple[str, int, Any]]:
    keys = {
        "general.architecture": (STRING, "llama"),
        "llama.block_count": (U32, 1),
        "llama.context_length": (U32, 64),
        "llama.embedding_length": (U32, HIDDEN),
        "llama.feed_forward_length": (U32, FFN),
        "llama.attention.head_count": (U32, HEADS),
        "llama.attention.head_count_kv": (U32, KV_HEADS),
        "llama.rope.freq_base": (FLOAT, 10000.0),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT, 1e-5),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "smollm"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, TOKENS)),
        "tokenizer.ggml.token_type": (ARRAY, (5, [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))),
        "tokenizer.ggml.merges": (ARRAY, (STRING, ["h e", "Ġ he"])),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.unknown_token_id": (U32, 0),
        "tokenizer.ggml.padding_token_id": (U32, 2),
    }
    keys |= {key.replace("__", "."): value for key, value in changed.items()}
    return [(key, kind, value) for key, (kind, value) in keys.items()]


def weights() -> dict[str, Any]:
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(TOKENS), HIDDEN),
        "output_norm": (HIDDEN,),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.attn_q": (HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HEADS * HEAD_DIM),
        "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.ffn_gate": (FFN, HIDDEN),
        "blk.0.ffn_up": (FFN, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, FFN),
    }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def export(folder: Path, source: dict[str, Any], **changed: tuple[int, Any]) -> None:
    tensors = [(f"{name}.weight", weight.shape, F32, weight.tobytes()) for name, weight in source.items()]
    write_folder(GgufFile(gguf_bytes(metadata(**changed), tensors)), folder, TEMPLATE, (2, 0))


def test_an_output_matrix_of_its_own_unties_the_embeddings(tmp_path: Path) -> None:
    source = weights()
    export(tmp_path, {**source, "output": source["token_embd"]})
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")


def test_the_tokenizer_merges_and_splits_digits_and_knows_special_tokens(tmp_path: Path) -> None:
    export(tmp_path, weights())
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("he he12<|im_end|>").tokens == ["he", "Ġhe", "1", "2", "<|im_end|>"]
    assert tokenizer.decode([1, 2], skip_special_tokens=True) == ""


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("general__architecture", (STRING, "mamba"), "architecture is 'mamba'"),
        ("tokenizer__ggml__pre", (STRING, "qwen2"), "pre-tokenizer 'qwen2'"),
        ("llama__rope__scaling__type", (STRING, "yarn"), "scales its rotary embeddings"),
    ],
)
def test_other_models_are_refused_by_name(tmp_path: Path, key: str, value: tuple[int, Any], named: str) -> None:
    with pytest.raises(GgufError, match=named):
        export(tmp_path, weights(), **{key: value})


def test_a_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"blk\.0\.attn_q_norm\.weight"):
        export(tmp_path, {**weights(), "blk.0.attn_q_norm": np.ones(4, np.float32)})
