"""The configuration of a Llama model, read from its Hugging Face folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpu_double.safetensors import ModelError, read_json

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class LlamaConfig:
    """The values of config.json that decide the computation."""

    vocab: int
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float
    max_positions: int
    tied: bool

    @classmethod
    def load(cls, folder: Path) -> LlamaConfig:
        """Read ``config.json``.

        Raises:
            ModelError: anything that this engine does not compute, by name.
        """
        raw = read_json(folder / "config.json")
        rope = raw.get("rope_parameters") or {}
        _reject_variants(raw, rope)
        try:
            heads = int(raw["num_attention_heads"])
            return cls(
                vocab=int(raw["vocab_size"]),
                hidden=int(raw["hidden_size"]),
                ffn=int(raw["intermediate_size"]),
                layers=int(raw["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(raw.get("num_key_value_heads") or heads),
                head_dim=int(raw.get("head_dim") or raw["hidden_size"] // heads),
                eps=float(raw["rms_norm_eps"]),
                theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
                max_positions=int(raw["max_position_embeddings"]),
                tied=bool(raw.get("tie_word_embeddings", False)),
            )
        except KeyError as error:
            raise ModelError(f"config.json: {error.args[0]} is missing") from error


def _reject_variants(raw: dict[str, Any], rope: dict[str, Any]) -> None:
    architecture = (raw.get("architectures") or [raw.get("model_type")])[0]
    if architecture not in ("LlamaForCausalLM", "llama"):
        raise ModelError(f"config.json: architecture {architecture} is not supported by the reference engine")
    scaling = raw.get("rope_scaling") or rope
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ModelError(f"config.json: rope_scaling of type {kind} is not supported by the reference engine")
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if raw.get(key):
            raise ModelError(f"config.json: {key} is not supported by the reference engine")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"config.json: hidden_act {raw['hidden_act']} is not supported by the reference engine")
