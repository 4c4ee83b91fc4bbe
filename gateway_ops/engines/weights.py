"""The weights of a model, counted from ``config.json`` and the headers of its safetensors files: nothing is loaded."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_LONGEST_HEADER = 100 * 2**20  # of the format (safetensors' own bound)


class UnreadableWeightsError(Exception):
    """A file that is not one of safetensors; the message names it and what is wrong."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters by their part in the model.

    Attributes:
        linear: of the layers' matrices, which quantisation makes smaller.
        embedding: of the table of the input.
        head: of the output's matrix; 0 where the embedding serves for it (tied).
        rest: norms, biases, positions, routers.
        stored_bytes: of the source's files; None where no file was read.
        quantised: whether the source's matrices are in fewer than 16 bits already.
    """

    linear: int
    embedding: int
    head: int
    rest: int
    stored_bytes: int | None = None
    quantised: bool = False

    @property
    def total(self) -> int:
        """All parameters of the source."""
        return self.linear + self.embedding + self.head + self.rest


def read_header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file: dtype, shape and place of each tensor.

    Raises:
        UnreadableWeightsError: it is no such file, or shorter than its header says.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _LONGEST_HEADER:
                raise UnreadableWeightsError(f"{path} is no safetensors file.")
            header = json.loads(file.read(length))
            held = path.stat().st_size - 8 - length
    except (OSError, ValueError, struct.error) as error:
        raise UnreadableWeightsError(f"{path} is no safetensors file.") from error
    if isinstance(header, dict):
        header.pop("__metadata__", None)
    if not isinstance(header, dict) or not all(_is_tensor(tensor) for tensor in header.values()):
        raise UnreadableWeightsError(f"{path} is no safetensors file.")
    end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    if held < end:
        raise UnreadableWeightsError(f"{path} ends after {held} of {end} bytes: it was not downloaded whole.")
    return header


def _is_tensor(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape, places = entry.get("shape"), entry.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(places, list) or len(places) != 2:
        return False
    return all(type(number) is int and number >= 0 for number in (*shape, *places))


def whole_number(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of these keys that holds a number above zero; None where none does."""
    return next((config[name] for name in names if type(config.get(name)) is int and config[name] > 0), None)


def stored_weights(folder: Path) -> Weights | None:
    """Count the parameters of a folder's safetensors files; None where it has none.

    Raises:
        UnreadableWeightsError: one of them is damaged.
    """
    counts = {"linear": 0, "embedding": 0, "head": 0, "rest": 0}
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    narrow = stored = 0
    for path in files:
        for name, tensor in read_header(path).items():
            size = math.prod(tensor["shape"])
            part = _part_of(name, len(tensor["shape"]))
            counts[part] += size
            begin, end = tensor["data_offsets"]
            stored += end - begin
            narrow += size if part == "linear" and _DTYPE_BYTES.get(tensor["dtype"], 1) == 1 else 0
    return Weights(**counts, stored_bytes=stored, quantised=narrow > counts["linear"] // 2) if files else None


def _part_of(name: str, dims: int) -> str:
    if any(part in name for part in ("embed_tokens", "wte.", "word_embeddings", "tok_embeddings")):
        return "embedding"
    if name.startswith(("lm_head.", "output.")) or ".lm_head." in name:
        return "head"
    routing = any(part in name for part in (".gate.weight", "router", "wpe."))
    return "linear" if dims >= 2 and not routing else "rest"


def shaped_weights(config: dict[str, Any]) -> Weights | None:
    """Count the parameters that a decoder's ``config.json`` implies; None where its form is not known here.

    Known are GPT-2's form, and the one of Llama with its kin: grouped heads, gated layers, experts.
    """
    if "n_embd" in config:
        return _gpt2(config)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    hidden, layers, heads, inner, vocab = (whole_number(config, name) or 0 for name in names)
    if 0 in (hidden, layers, heads, inner, vocab):
        return None
    kind, kv = config.get("model_type"), whole_number(config, "num_key_value_heads") or heads
    head_dim = whole_number(config, "head_dim") or hidden // heads
    attention = 2 * hidden * head_dim * (heads + kv)
    experts, router = _experts(config, hidden, inner)
    dense = (2 if kind in _UNGATED else 3) * hidden * inner
    rest = layers * (2 * hidden + router) + hidden
    if kind == "qwen2" or config.get("attention_bias") is True:
        rest += layers * head_dim * (heads + 2 * kv)
    tied = config.get("tie_word_embeddings", kind in _TIED)
    return Weights(layers * (attention + (experts or dense)), vocab * hidden, 0 if tied else vocab * hidden, rest)


_UNGATED = ("phi", "starcoder2", "nemotron", "gpt_neox", "gptj", "bloom", "falcon", "opt", "mpt")
_TIED = ("gemma", "gemma2", "gemma3_text", "cohere", "gpt2", "starcoder2")  # transformers' defaults


def _experts(config: Mapping[str, Any], hidden: int, inner: int) -> tuple[int, int]:
    """Parameters of a layer's experts, and of its router; zeros without experts."""
    count = whole_number(config, *_EXPERT_NAMES) or 0
    inner = whole_number(config, "moe_intermediate_size") or inner
    shared = whole_number(config, "shared_expert_intermediate_size") or 0
    return (3 * hidden * (count * inner + shared), hidden * count) if count else (0, 0)


_EXPERT_NAMES = ("num_local_experts", "num_experts", "n_routed_experts")


def _gpt2(config: Mapping[str, Any]) -> Weights | None:
    names = ("n_embd", "n_layer", "vocab_size", "n_positions")
    hidden, layers, vocab, places = (whole_number(config, name) or 0 for name in names)
    if 0 in (hidden, layers, vocab, places):
        return None
    inner = whole_number(config, "n_inner") or 4 * hidden
    linear = layers * (4 * hidden * hidden + 2 * hidden * inner)
    rest = layers * (9 * hidden + inner) + 2 * hidden + places * hidden
    return Weights(linear, vocab * hidden, 0, rest)
