"""A plain beam search on the reference model: every beam computed anew in every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpu_double.llama import Chunk, Llama
from wire.log_probs import best_log_probs, log_softmax


@dataclass(frozen=True)
class Found:
    """A beam: its tokens, their log-probs, and whether it has ended."""

    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    ended: bool = False

    def score(self, length_penalty: float) -> float:
        """What beams are compared by."""
        return sum(self.log_probs) / max(len(self.ids), 1) ** length_penalty


def search(
    model: Llama, prompt: list[int], *, width: int, tokens: int, end_id: int, length_penalty: float
) -> list[Found]:
    """The best beams, best first."""
    beams = [Found()]
    for _ in range(tokens):
        if all(beam.ended for beam in beams):
            break
        candidates = [beam for beam in beams if beam.ended]
        for beam in beams:
            candidates += [] if beam.ended else _followers(model, prompt, beam, width, end_id)
        beams = sorted(candidates, key=lambda beam: -beam.score(length_penalty))[:width]
    return beams


def _followers(model: Llama, prompt: list[int], beam: Found, width: int, end_id: int) -> list[Found]:
    (logits,) = model.forward([Chunk([*prompt, *beam.ids], model.new_cache(), 1)])
    best = best_log_probs(log_softmax(logits.astype(np.float64)), width)
    return [
        Found(beam.ids + (() if token == end_id else (token,)), (*beam.log_probs, value), token == end_id)
        for token, value in best
    ]
