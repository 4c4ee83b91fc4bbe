"""Log-probs from whole logits, for engines that have no tensor of log-probs (wire contract 2.6).

The logits are the model's own: before temperature, penalties and biases. NumPy comes with ``tritonclient``; nothing on
the way of ordinary tokens uses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from gateway.generation.engine import MalformedOutputError

_TYPES: dict[str, Any] = {"FP32": np.dtype("<f4"), "FP16": np.dtype("<f2")}

Alternatives = list[tuple[int, float]]


def read_rows(response: service_pb2.ModelInferResponse, name: str) -> NDArray[Any] | None:
    """The logits of an output as rows, [positions, vocabulary]; None when the response does not hold it.

    The dimensions before the last hold one beam's positions, in whatever order the engine puts the beam.

    Raises:
        MalformedOutputError: they are of another type, or not as many as their shape says.
    """
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
        if output.name == name:
            if output.datatype not in _TYPES or not output.shape:
                raise _broken(f"{name} has type {output.datatype} and shape {list(output.shape)}")
            size, width = _TYPES[output.datatype].itemsize, int(output.shape[-1])
            if min(output.shape) < 0 or math.prod(output.shape) * size != len(raw):
                raise _broken(f"{name} has shape {list(output.shape)} and {len(raw)} bytes")
            return np.frombuffer(raw, _TYPES[output.datatype]).reshape(-1, width) if raw else None
    return None


def log_probs(
    rows: NDArray[Any], chosen: Sequence[int], alternatives: int, vocab_size: int | None
) -> tuple[list[float], list[Alternatives]]:
    """Natural-log probabilities of one chosen token per row, and the best alternatives.

    Args:
        rows: [at least len(chosen), vocabulary], padding at the end of the vocabulary allowed.
        chosen: a token id for each row.
        alternatives: how many per row.
        vocab_size: width of the vocabulary without padding; None takes all.

    Raises:
        MalformedOutputError: the rows do not fit.
    """
    width = vocab_size or rows.shape[1]
    if rows.shape[0] < len(chosen) or rows.shape[1] < width or any(not 0 <= token < width for token in chosen):
        raise _broken(f"logits {rows.shape} for {len(chosen)} tokens of a vocabulary of {vocab_size}")
    values: list[float] = []
    best: list[Alternatives] = []
    for row, token in zip(rows, chosen, strict=False):
        scores = row[:width].astype(np.float64)
        peak = scores.max()
        with np.errstate(invalid="ignore"):  # what is no number is refused by whoever makes an entry of it
            scores -= peak + np.log(np.exp(scores - peak).sum())
        values.append(float(scores[token]))
        best.append(_best(scores, alternatives))
    return values, best


def ranks(rows: NDArray[Any], chosen: Sequence[int], vocab_size: int | None) -> list[int]:
    """The place of each chosen token among all of its row, from 1; arguments as of ``log_probs``, which checks them."""
    width = min(rows.shape[1], vocab_size or rows.shape[1])
    return [
        1 + int(np.count_nonzero(row[:width] > row[token])) + int(np.count_nonzero(row[:token] == row[token]))
        for row, token in zip(rows, chosen, strict=False)
    ]


def _best(scores: NDArray[np.float64], count: int) -> Alternatives:
    if not count:
        return []
    candidates = np.sort(np.argpartition(-scores, count)[:count]) if count < len(scores) else np.arange(len(scores))
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    return [(int(index), float(scores[index])) for index in order]


def _broken(detail: str) -> MalformedOutputError:
    return MalformedOutputError(detail, "The engine returned logits that do not fit its tokens.")
