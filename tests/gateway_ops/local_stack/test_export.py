"""A Hugging Face style folder from a small GGUF file, written here by the GGUF specification, version 3."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer, pre_tokenizers

from gateway_ops.local_stack.export import write_folder
from gateway_ops.local_stack.gguf import GgufError, GgufFile

U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9  # kinds of values
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN = 8, 2, 1, 4, 16
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "Ġhe"]
METADATA: dict[str, tuple[int, Any]] = {
    "general.architecture": (STRING, "llama"),
    "llama.block_count": (U32, 1),
    "llama.context_length": (U32, 64),
    "llama.embedding_length": (U32, HIDDEN),
    "llama.feed_forward_length": (U32, FFN),
    "llama.attention.head_count": (U32, HEADS),
    "llama.attention.head_count_kv": (U32, KV_HEADS),
    "llama.rope.freq_base": (F32, 10000.0),
    "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    "tokenizer.ggml.model": (STRING, "gpt2"),
    "tokenizer.ggml.pre": (STRING, "smollm"),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, TOKENS)),
    "tokenizer.ggml.token_type": (ARRAY, (I32, [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))),
    "tokenizer.ggml.merges": (ARRAY, (STRING, ["h e", "Ġ he"])),
    "tokenizer.ggml.bos_token_id": (U32, 1),
    "tokenizer.ggml.eos_token_id": (U32, 2),
    "tokenizer.ggml.unknown_token_id": (U32, 0),
    "tokenizer.ggml.padding_token_id": (U32, 2),
}
SQUARE = (HEADS * HEAD_DIM, HIDDEN)
SHAPES: dict[str, tuple[int, ...]] = {"token_embd": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,)}
SHAPES |= {
    "blk.0.attn_norm": (HIDDEN,),
    "blk.0.attn_q": SQUARE,
    "blk.0.attn_output": SQUARE,
    "blk.0.ffn_norm": (HIDDEN,),
}
SHAPES |= {f"blk.0.attn_{name}": (KV_HEADS * HEAD_DIM, HIDDEN) for name in "kv"}
SHAPES |= {"blk.0.ffn_gate": (FFN, HIDDEN), "blk.0.ffn_up": (FFN, HIDDEN), "blk.0.ffn_down": (HIDDEN, FFN)}


def _value(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return struct.pack("<Q", len(value.encode())) + value.encode()
    if kind == ARRAY:
        return struct.pack("<IQ", value[0], len(value[1])) + b"".join(_value(value[0], one) for one in value[1])
    return struct.pack({U32: "<I", I32: "<i", F32: "<f"}[kind], value)


def gguf(shapes: dict[str, tuple[int, ...]] = SHAPES, **changed: tuple[int, Any]) -> bytes:
    """The bytes of a file with random weights and changed metadata."""
    metadata = METADATA | {key.replace("__", "."): value for key, value in changed.items()}
    head, body = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata)), b""
    for key, (kind, value) in metadata.items():
        head += _value(STRING, key) + struct.pack("<I", kind) + _value(kind, value)
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        head += _value(STRING, f"{name}.weight") + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", 0, len(body))
        body += random.standard_normal(shape).astype("<f4").tobytes()  # all shapes here fill blocks of 32 bytes
    return head + bytes(-len(head) % 32) + body


def export(folder: Path, data: bytes) -> None:
    write_folder(GgufFile(data), folder, "{{ messages[0]['content'] }}", (2, 0))


def test_weights_and_tokenizer_are_those_of_the_file(tmp_path: Path) -> None:
    export(tmp_path, gguf({**SHAPES, "output": SHAPES["token_embd"]}))
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("he he12<|im_end|>").tokens == ["he", "Ġhe", "1", "2", "<|im_end|>"]
    assert tokenizer.decode([1, 2], skip_special_tokens=True) == ""


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"PK\x03\x04 something else", "not a GGUF file"),
        (gguf()[:90], "the GGUF file is cut short"),
        (gguf()[:-1], r"cut short inside tensor 'blk\.0\.ffn_down\.weight'"),
        (gguf(general__architecture=(STRING, "mamba")), "architecture is 'mamba'"),
        (gguf(tokenizer__ggml__pre=(STRING, "qwen2")), "pre-tokenizer 'qwen2'"),
        (gguf(llama__rope__scaling__type=(STRING, "yarn")), "scales its rotary embeddings"),
        (gguf({**SHAPES, "blk.0.attn_q_norm": (8,)}), r"blk\.0\.attn_q_norm\.weight"),
    ],
)
def test_another_file_is_refused_by_name(tmp_path: Path, data: bytes, named: str) -> None:
    with pytest.raises(GgufError, match=named):
        export(tmp_path, data)
