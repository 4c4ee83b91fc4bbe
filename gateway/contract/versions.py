"""The tables of other versions than 1.2.1, by what changed since (wire contract 1.8)."""

from __future__ import annotations

from dataclasses import replace

from gateway.contract.tensors import ModelSpec, TensorSpec

OLDEST = (0, 19, 0)
"""The oldest version whose tables are known: it brought guided decoding and ``return_perf_metrics``."""
_RENAMED = (0, 20, 0)  # random_seed -> seed, min_length -> min_tokens
_COUNTS_SINCE = (1, 0, 0)
_COUNTS = frozenset(
    {"return_num_input_tokens", "return_num_output_tokens", "num_input_tokens", "num_output_tokens"},
)
GONE = (1, 3, 0)
"""The version that deleted the models with TensorRT engines (wire contract 0)."""

Version = tuple[int, ...]


def parse_version(text: str) -> Version:
    """``1.2.1`` or ``1.2`` as numbers that compare."""
    numbers = [int(part) for part in text.split(".")]
    return tuple([*numbers, 0, 0][:3])


def of_version(spec: ModelSpec, version: Version) -> ModelSpec:
    """A model's tensors as a version has them; extensions of this project are in every one.

    Args:
        spec: of the newest version.
        version: at least ``OLDEST``.
    """
    return replace(spec, inputs=_of_version(spec.inputs, version), outputs=_of_version(spec.outputs, version))


def _of_version(tensors: tuple[TensorSpec, ...], version: Version) -> tuple[TensorSpec, ...]:
    kept = [tensor for tensor in tensors if version >= _COUNTS_SINCE or tensor.name not in _COUNTS]
    if version >= _RENAMED:
        return tuple(kept)
    return tuple(replace(tensor, name=tensor.older or tensor.name, older=None) for tensor in kept)
