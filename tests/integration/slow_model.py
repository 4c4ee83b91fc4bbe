"""A tiny model whose steps take tens of milliseconds: the plain one's answer is over before anyone can leave."""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import load_file, save_file

from tests.tiny_model import VOCAB_SIZE, write_tiny_model

_LOGITS = 400_000  # so many to sort: 50 ms and more
_LEAD = 1.75  # logits that have tokens are so much larger than they were, the others so much smaller

SLOW_TOP_P = 0.9999999


def write_slow_model(folder: Path) -> None:
    """Write it; sampling with ``SLOW_TOP_P`` sorts all logits, and yet hardly ever takes one that has no token.

    A larger lead, or a smaller ``SLOW_TOP_P``, leaves steps whose nucleus is small, which are over in 13 ms.
    """
    write_tiny_model(folder, vocab=_LOGITS, max_position_embeddings=1024)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][:VOCAB_SIZE] *= _LEAD
    weights["lm_head.weight"][VOCAB_SIZE:] /= _LEAD
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
