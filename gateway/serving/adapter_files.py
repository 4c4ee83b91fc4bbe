"""Files of adapters and prompt tables: folders of Hugging Face PEFT, and .npy files of TensorRT-LLM's tools."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.generation.request import LoraAdapter, Matrix, PromptTable

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
    """The sizes of a model, which adapters and prompt tables must fit.

    Attributes:
        source: the file with the sizes.
        hidden: width of an embedding.
        layers: number of layers.
        modules: inputs and outputs of each module, by TensorRT-LLM's number.
    """

    source: Path
    hidden: int
    layers: int
    modules: Mapping[int, tuple[int, int]]


def read_size(folder: Path) -> ModelSize | None:
    """Read the sizes of the model in a folder; None where ``config.json`` is missing or does not have them."""
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


def pair_misfit(size: ModelSize, layer: int, module: int, columns: int, rows: int) -> str | None:
    """Say why a pair of matrices does not fit the model; None when it does.

    Args:
        size: sizes of the model.
        layer: changed layer.
        module: changed module, by TensorRT-LLM's number.
        columns: columns of A.
        rows: rows of B.
    """
    inputs, outputs = size.modules[module]
    if layer < size.layers and (columns, rows) != (inputs, outputs):
        where = f"its {_NAMES[module]} of layer {layer}"
        return f"{where} has the shape {columns} -> {rows}, but {size.source} requires {inputs} -> {outputs}"
    return _layer_misfit(size, layer)


def row_misfit(size: ModelSize, layer: int, module: int, rank: int, values: NDArray[Any]) -> str | None:
    """Say why a row of packed weights (A, B, then zeros) does not fit the model; None when it does.

    Args:
        size: sizes of the model.
        layer: changed layer.
        module: changed module, by TensorRT-LLM's number; an unknown module is not checked.
        rank: rank of the row.
        values: values of the row.
    """
    wanted = rank * sum(size.modules.get(module, ()))
    if wanted and (wanted > len(values) or values[wanted:].any()):
        where = f"its row for {_NAMES[module]} of layer {layer}"
        return f"{where} must have {wanted} values for rank {rank} by {size.source}"
    return _layer_misfit(size, layer)


def _layer_misfit(size: ModelSize, layer: int) -> str | None:
    if 0 <= layer < size.layers:
        return None
    return f"it changes layer {layer}, but {size.source} has {size.layers} layers, numbered from 0"


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0


_KEY = re.compile(r"\.layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])(?:\.default)?\.weight$")
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
ADAPTER_FILES = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "model.lora_weights.npy",
    "model.lora_config.npy",
)
"""Files that a folder with an adapter may hold."""
# What the wire has no place for; each must be absent or falsy.
_UNSUPPORTED = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "fan_in_fan_out", "layers_to_transform")

Pairs = dict[tuple[int, int], dict[str, NDArray[Any]]]


class AdapterFileError(ValueError):
    """An unusable file; the message names the file and the reason, in one sentence without its full stop."""


def read_adapter(folder: Path, task_id: int, size: ModelSize | None = None) -> LoraAdapter:
    """Read an adapter's folder.

    Args:
        folder: either ``model.lora_weights.npy`` and ``model.lora_config.npy``, as TensorRT-LLM's
            ``hf_lora_convert.py`` writes them, or ``adapter_config.json`` and ``adapter_model.safetensors``.
        task_id: id under which the engine stores the adapter.
        size: sizes of the model; None where they are unknown.

    Raises:
        AdapterFileError: naming what cannot be used.
    """
    if (folder / "model.lora_weights.npy").is_file():
        weights, rows = _read_npy(folder / "model.lora_weights.npy"), _read_npy(folder / "model.lora_config.npy")
    else:
        weights, rows = _convert(folder, size)
    if weights.ndim != 2 or rows.ndim != 2 or len(weights) != len(rows) or rows.shape[1] < 3:
        raise AdapterFileError(
            f"{folder}: each row of weights needs [module, layer, rank]; their shapes are {weights.shape}, {rows.shape}"
        )
    if rows.shape[1] != 3 and rows[:, 3:].any():
        raise AdapterFileError(f"{folder} is a DoRA adapter; DoRA is not supported")
    if size is not None:
        for values, (module, layer, rank) in zip(weights, rows[:, :3].astype(int).tolist(), strict=True):
            _reject(folder, row_misfit(size, layer, module, rank, values))
    return LoraAdapter(task_id, _halves(weights, folder), _matrix(rows[:, :3].astype("<i4")))


def read_prompt_table(path: Path, size: ModelSize | None = None) -> PromptTable:
    """Read a prompt table: an ``.npy`` file with the embeddings [virtual tokens, hidden] or [1, tokens, hidden].

    Args:
        path: path of the file.
        size: sizes of the model; None where they are unknown.

    Raises:
        AdapterFileError: naming what cannot be used.
    """
    table = _read_npy(path)
    if table.ndim != 2 or not table.size:
        raise AdapterFileError(f"{path} must have the shape [virtual tokens, hidden], not {list(table.shape)}")
    if size is not None and table.shape[1] != size.hidden:
        raise AdapterFileError(
            f"{path} has rows of {table.shape[1]} values, but embeddings have {size.hidden} values by {size.source}"
        )
    embeddings = _halves(table, path)
    return PromptTable(embeddings, int.from_bytes(hashlib.sha256(embeddings.values).digest()[:8], "little") or 1)


def _reject(folder: Path, misfit: str | None) -> None:
    if misfit is not None:
        raise AdapterFileError(f"{folder} is for another model: {misfit}")


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise AdapterFileError(f"{path} cannot be read: {error}") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fi":
        raise AdapterFileError(f"{path} must contain numbers")
    return array[0] if array.ndim == 3 and len(array) == 1 else array


def _convert(folder: Path, size: ModelSize | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights [rows, width] and configuration [rows, 3] of a PEFT folder; the scale goes into B."""
    config = _read_config(folder / "adapter_config.json")
    pairs = _pairs(folder / "adapter_model.safetensors")
    rows, numbers = [], []
    for (layer, module), pair in sorted(pairs.items()):
        if pair.keys() != {"A", "B"} or pair["A"].shape[0] != pair["B"].shape[1]:
            raise AdapterFileError(f"{folder}: layer {layer} has no matching pair of lora_A and lora_B")
        if size is not None:
            _reject(folder, pair_misfit(size, layer, module, pair["A"].shape[1], pair["B"].shape[0]))
        rank = pair["A"].shape[0]
        scale = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
        rows.append(np.concatenate([pair["A"].ravel(), (pair["B"] * scale).ravel()]))
        numbers.append((module, layer, rank))
    weights = np.zeros((len(rows), max(map(len, rows))))
    for place, row in zip(weights, rows, strict=True):
        place[: len(row)] = row
    return weights, np.array(numbers)


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AdapterFileError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("lora_alpha"), int | float):
        raise AdapterFileError(f"{path} has no lora_alpha")
    if asked := [name for name in _UNSUPPORTED if config.get(name)]:
        raise AdapterFileError(f"{path}: {asked[0]} is not supported")
    if config.get("bias", "none") != "none":
        raise AdapterFileError(f"{path}: bias is not supported")
    return config


def _pairs(path: Path) -> Pairs:
    pairs: Pairs = {}
    for key, array in _read_safetensors(path).items():
        found = _KEY.search(key)
        if found is None or found[2] not in MODULES or array.ndim != 2:
            raise AdapterFileError(
                f"{path}: {key} belongs to an unsupported module; supported modules are {', '.join(MODULES)}"
            )
        pairs.setdefault((int(found[1]), MODULES[found[2]]), {})[found[3]] = array
    if not pairs:
        raise AdapterFileError(f"{path} is empty")
    return pairs


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """All tensors of a file: the length of the header in 8 bytes, the header in JSON, the data."""
    try:
        data = path.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        return {key: _tensor(data[end:], entry) for key, entry in header.items() if key != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdapterFileError(f"{path} cannot be read: {error}") from None


def _tensor(data: bytes, entry: Mapping[str, Any]) -> NDArray[Any]:
    start, stop = entry["data_offsets"]
    array: NDArray[Any] = np.frombuffer(data[start:stop], _DTYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    return array.astype(np.float64).reshape(entry["shape"])


def _halves(array: NDArray[Any], source: Path) -> Matrix:
    with np.errstate(over="ignore"):
        halves = array.astype("<f2")
    if not np.isfinite(halves).all():
        raise AdapterFileError(f"{source} has values outside the range of float16")
    return _matrix(halves)


def _matrix(array: NDArray[Any]) -> Matrix:
    return Matrix(np.ascontiguousarray(array).tobytes(), *array.shape)
