"""Whether adapters and prompt tables are of the model's size, where its ``config.json`` lies beside the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

# Families whose projections are as wide as config.json says in plain words; of others the engine itself must tell.
_PLAIN = frozenset({"llama", "mistral", "qwen2", "qwen3", "granite", "smollm3", "gemma", "gemma2"})
# TensorRT-LLM's numbers of the modules of decoder-only models, by Hugging Face's names.
MODULES = {
    "q_proj": 1,
    "k_proj": 2,
    "v_proj": 3,
    "o_proj": 4,
    "gate_proj": 5,
    "down_proj": 6,
    "up_proj": 7,
}
_NAMES = {number: name for name, number in MODULES.items()}
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What adapters and prompt tables must fit.

    Attributes:
        source: the file that says so.
        hidden: width of an embedding.
        layers: how many.
        modules: inputs and outputs of each module, by TensorRT-LLM's number.
    """

    source: Path
    hidden: int
    layers: int
    modules: Mapping[int, tuple[int, int]]


def read_size(folder: Path) -> ModelSize | None:
    """The size of the model in a folder; None where its ``config.json`` is not there or does not say it plainly."""
    source = folder / "config.json"
    try:
        config: Any = json.loads(source.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict) or config.get("model_type") not in _PLAIN:
        return None
    if not all(_is_size(config.get(name)) for name in _SIZES):
        return None
    hidden, layers, heads, inner = (config[name] for name in _SIZES)
    head, kv_heads = config.get("head_dim") or hidden // heads, config.get("num_key_value_heads") or heads
    if not _is_size(head) or not _is_size(kv_heads):
        return None
    query, kv = heads * head, kv_heads * head
    modules = {1: (hidden, query), 2: (hidden, kv), 3: (hidden, kv), 4: (query, hidden)}
    modules |= {5: (hidden, inner), 6: (inner, hidden), 7: (hidden, inner)}
    return ModelSize(source, hidden, layers, modules)


def pair_misfit(size: ModelSize, layer: int, module: int, taken: int, given: int) -> str | None:
    """Why a pair of matrices does not fit; None when it does.

    Args:
        size: of the model.
        layer: that the pair changes.
        module: likewise, by TensorRT-LLM's number.
        taken: columns of A.
        given: rows of B.
    """
    inputs, outputs = size.modules[module]
    if layer < size.layers and (taken, given) != (inputs, outputs):
        where = f"its {_NAMES[module]} of layer {layer}"
        return f"{where} is {taken} -> {given}, but {inputs} -> {outputs} by {size.source}"
    return _layer_misfit(size, layer)


def row_misfit(size: ModelSize, layer: int, module: int, rank: int, values: NDArray[Any]) -> str | None:
    """Why a row of packed weights does not fit, which holds A, B and padding with zeros; None when it does.

    Args:
        size: of the model.
        layer: that the row changes.
        module: likewise, by TensorRT-LLM's number; of one that is not known here nothing is said.
        rank: of the row.
        values: of the row.
    """
    wanted = rank * sum(size.modules.get(module, ()))
    if wanted and (wanted > len(values) or values[wanted:].any()):
        where = f"its row for {_NAMES[module]} of layer {layer}"
        return f"{where} is not of the {wanted} values that rank {rank} has by {size.source}"
    return _layer_misfit(size, layer)


def _layer_misfit(size: ModelSize, layer: int) -> str | None:
    if 0 <= layer < size.layers:
        return None
    return f"it changes layer {layer}, but {size.source} has {size.layers} layers, which are numbered from 0"


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0
