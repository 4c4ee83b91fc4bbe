"""Make an adapter with random weights for a Llama model, in Hugging Face PEFT's format: to try LoRA."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

RANK, ALPHA = 4, 8
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def make_adapter(model: Path, folder: Path, *, seed: int, spread: float = 0.2) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors``.

    Args:
        model: folder with config.json.
        folder: where to write.
        seed: of the weights.
        spread: their standard deviation.
    """
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    query, key = heads * head, config.get("num_key_value_heads", heads) * head
    ffn = config["intermediate_size"]
    shapes = {"q_proj": (query, hidden), "k_proj": (key, hidden), "v_proj": (key, hidden), "o_proj": (hidden, query)}
    shapes |= {"gate_proj": (ffn, hidden), "up_proj": (ffn, hidden), "down_proj": (hidden, ffn)}
    rng = np.random.default_rng(seed)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (outputs, inputs) in shapes.items():
            part = "self_attn" if name in ATTENTION else "mlp"
            prefix = f"base_model.model.model.layers.{layer}.{part}.{name}"
            weights[f"{prefix}.lora_A.weight"] = rng.normal(0, spread, (RANK, inputs)).astype(np.float32)
            weights[f"{prefix}.lora_B.weight"] = rng.normal(0, spread, (outputs, RANK)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": [*ATTENTION, *MLP], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make_adapter(arguments.model, arguments.folder, seed=arguments.seed)
