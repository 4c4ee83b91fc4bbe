"""Requests that have an engine to themselves."""

from __future__ import annotations

import functools

from cpu_double.llama import Llama
from cpu_double.reference_engine import Limits, ReferenceEngine
from wire.request import Request
from wire.response import Response


def drain(engine: ReferenceEngine) -> dict[str, list[Response]]:
    """All responses to what is in flight, by id."""
    answers: dict[str, list[Response]] = {}
    while engine.busy:
        for response in engine.step():
            answers.setdefault(response.request.id, []).append(response)
    return answers


@functools.cache
def greedy_alone(model: Llama, prompt: tuple[int, ...], count: int, end_id: int = -1) -> tuple[list[int], int]:
    """Greedy tokens of a request that is alone, and how many of them have a clear margin."""
    engine = ReferenceEngine(model, Limits(max_seq_len=2048), normalize_log_probs=False)
    engine.submit(Request("", list(prompt), count, end_id=end_id, top_log_probs=2))
    (answer,) = drain(engine)[""]
    margins = [top[0][1] - top[1][1] for top in answer.top_log_probs]
    return answer.ids, next((place for place, margin in enumerate(margins) if margin < 1e-3), len(margins))
