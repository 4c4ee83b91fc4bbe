"""Small LoRA adapters for the tiny model, in the contract's form and merged into its weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

# TensorRT-LLM's module numbers, and Hugging Face's names of what they are added to.
MODULES = {
    1: "self_attn.q_proj",
    2: "self_attn.k_proj",
    3: "self_attn.v_proj",
    4: "self_attn.o_proj",
    5: "mlp.gate_proj",
    6: "mlp.down_proj",
    7: "mlp.up_proj",
}
LAYERS = 2
Pair = tuple[NDArray[np.float16], NDArray[np.float16]]


def shapes(folder: Path) -> dict[int, tuple[int, ...]]:
    """Outputs and inputs of each module."""
    weights = load_file(folder / "model.safetensors")
    return {module: weights[f"model.layers.0.{name}.weight"].shape for module, name in MODULES.items()}


def make_pairs(folder: Path, seed: int, *, modules: tuple[int, ...] = tuple(MODULES)) -> dict[tuple[int, int], Pair]:
    """Random A [3, inputs] and B [outputs, 3], with the scale in it, by layer and module."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for layer in range(LAYERS):
        for module in modules:
            outputs, inputs = shapes(folder)[module]
            a = rng.normal(0, 0.2, (3, inputs)).astype(np.float16)
            pairs[layer, module] = a, rng.normal(0, 0.2, (outputs, 3)).astype(np.float16)
    return pairs


def pack(pairs: dict[tuple[int, int], Pair]) -> tuple[NDArray[np.float16], NDArray[np.int32]]:
    """``lora_weights`` [rows, width] and ``lora_config`` [rows, 3]; short rows are padded."""
    rows = [np.concatenate([a.ravel(), b.ravel()]) for a, b in pairs.values()]
    width = max(map(len, rows)) + 5
    weights = np.stack([np.pad(row, (0, width - len(row)), constant_values=9) for row in rows])
    return weights, np.array([(m, layer, len(a)) for (layer, m), (a, _) in pairs.items()], np.int32)


def merge(folder: Path, pairs: dict[tuple[int, int], Pair], target: Path) -> Path:
    """A copy of a model folder in which each weight is W + B @ A."""
    shutil.copytree(folder, target)
    weights = load_file(folder / "model.safetensors")
    for (layer, module), (a, b) in pairs.items():
        name = f"model.layers.{layer}.{MODULES[module]}.weight"
        merged = weights[name].astype(np.float64) + b.astype(np.float64) @ a.astype(np.float64)
        weights[name] = merged.astype(np.float32)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target
