"""The stored format of a quantised checkpoint's matrices: bits of a parameter.

Sources: ``quantization_config`` as transformers and compressed-tensors write it, ``hf_quant_config.json`` of NVIDIA's
Model Optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway_ops.engines.config_sizes import MXFP4

_SCALE, _DEFAULT_GROUP = 16, 128
# The Model Optimizer's names; NVFP4 has a scale of 8 bits for each 16 parameters.
_ALGORITHMS = {
    "FP8": 8.0,
    "FP8_PER_CHANNEL_PER_TOKEN": 8.0,
    "FP8_BLOCK_SCALES": 8.0,
    "FP8_PB_WO": 8.0,
    "W8A8_SQ_PER_CHANNEL": 8.0,
    "W8A16": 8.0,
    "NVFP4": 4.5,
    "W4A16_AWQ": 4 + _SCALE / _DEFAULT_GROUP,
    "W4A8_AWQ": 4 + _SCALE / _DEFAULT_GROUP,
}
_METHODS = {"fp8": 8.0, "fbgemm_fp8": 8.0, "mxfp4": MXFP4}


class UnknownFormatError(Exception):
    """An unknown quantised format; the message names it."""


def source_bits(quantization: Mapping[str, Any]) -> float | None:
    """The bits of a parameter of the matrices; None where the source is not quantised.

    Args:
        quantization: the checkpoint's quantization settings; empty without any.

    Raises:
        UnknownFormatError: the format is unknown.
    """
    if not quantization:
        return None
    method, algorithm = quantization.get("quant_method"), quantization.get("quant_algo")
    found: float | None = None
    if isinstance(algorithm, str):
        found = _ALGORITHMS.get(algorithm)
    elif method in ("awq", "gptq"):
        found = _grouped(quantization.get("bits"), quantization.get("group_size"))
    elif method == "compressed-tensors":
        found = _compressed(quantization.get("config_groups"))
    elif method == "bitsandbytes":
        found = 4.5 if quantization.get("load_in_4bit") is True else 8.0
    elif isinstance(method, str):
        found = _METHODS.get(method)
    if found is None:
        raise UnknownFormatError(f"how the model is quantised is unknown: {algorithm or method!r}"[:100])
    return found


def source_kind(quantization: Mapping[str, Any]) -> str:
    """The number type that kernels must support and not all GPUs do: ``fp8``, ``nvfp4``; else empty."""
    named = [quantization.get(name) for name in ("quant_algo", "quant_method")]
    said = " ".join(name.lower() for name in named if isinstance(name, str))
    return "nvfp4" if "nvfp4" in said else "fp8" if "fp8" in said else ""


def _compressed(groups: Any) -> float | None:
    """The most bits of a group's weights."""
    schemes = list(groups.values()) if isinstance(groups, dict) else []
    weights = [scheme.get("weights") for scheme in schemes if isinstance(scheme, dict)]
    found = [_grouped(one.get("num_bits"), one.get("group_size")) for one in weights if isinstance(one, dict)]
    known = [bits for bits in found if bits is not None]
    return max(known) if known and len(known) == len(schemes) else None


def _grouped(bits: Any, group: Any) -> float | None:
    """Bits of a parameter with its share of the scale of its group."""
    if type(bits) is not int or not 1 <= bits <= 16:
        return None
    return bits + _SCALE / group if type(group) is int and group > 0 else float(bits)
