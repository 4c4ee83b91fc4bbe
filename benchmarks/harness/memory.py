"""Memory for each open stream: many streams at one token a second, measured while all of them flow."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from .load import Load, run
from .processes import BenchmarkError, Child, SyntheticTriton, raise_file_limit
from .relay import Tell
from .steady import SteadyLoad
from .subjects import Subject, body, start, transports, write_repository

STREAMS = (500, 2_000, 10_000)
_DELAY_US = 1_000_000
_TOKENS = 100_000  # of an answer: it goes on until the synthetic Triton is told to end it
_STARTS_S = 400  # streams started each second: what these machines take without falling behind
_SETTLE_S = 25
_WINDOW_S = 5.0
_SAMPLES = 5
_WARM_UP = Load("warm-up", 64, 0, 20)


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Measure one process of each gateway with streams added up to each number; all answers end whole.

    Args:
        rounds: not used: memory varies little, and ten thousand streams take their time.
        tell: is told of each row.

    Returns:
        Rows with bytes of the idle process, those in flow (medians of a window), the most so far, and what that is for
        each stream; tokens carried each second and CPU for each. Or ``error``: of the first number of streams that was
        too many.
    """
    del rounds
    raise_file_limit()
    subjects = [*(Subject("gateway", "tokens", name) for name in transports()[1]), Subject("naive", "tokens")]
    rows = []
    with SyntheticTriton(write_repository()) as triton:
        for subject in subjects:
            for row in _grown(subject, triton):
                rows.append(row)
                tell(" ".join(f"{name}={value}" for name, value in row.items()))
    return {"rows": sorted(rows, key=lambda row: int(row["streams"]))}


def _grown(subject: Subject, triton: SyntheticTriton) -> Iterator[dict[str, Any]]:
    streams = STREAMS[0]
    try:
        with start(subject, triton) as child:
            triton.pace(0)
            run(child, _WARM_UP, body(_WARM_UP.tokens))
            idle = {"idle_bytes": child.resident_bytes(), "idle_private_bytes": child.private_bytes()}
            triton.pace(_DELAY_US)
            load = Load("memory", 0, _DELAY_US, _TOKENS)
            with SteadyLoad(child, load, body(_TOKENS), 0) as steady:
                begun = 0
                for streams in STREAMS:
                    steady.add(streams - begun, (streams - begun) * 1_000_000 // _STARTS_S)
                    steady.wait()
                    steady.settle(streams, _SETTLE_S)
                    yield {"subject": subject.name, "streams": streams, **_window(child, steady, streams, idle)}
                    begun = streams
                steady.end(triton.end_streams)
    except BenchmarkError as error:
        yield {"subject": subject.name, "streams": streams, "error": str(error)}


def _window(child: Child, steady: SteadyLoad, streams: int, idle: dict[str, int]) -> dict[str, Any]:
    """Memory and throughput while every stream gets its token each second."""
    steady.figures()
    cpu_s, resident, private = child.cpu_s(), [], []
    for _ in range(_SAMPLES):
        time.sleep(_WINDOW_S / _SAMPLES)
        resident.append(child.resident_bytes())
        private.append(child.private_bytes())
    cpu_s = child.cpu_s() - cpu_s
    carried = steady.figures()
    return {
        "idle_bytes": idle["idle_bytes"],
        "flow_bytes": int(statistics.median(resident)),
        "most_bytes": child.most_resident_bytes(),
        "kilobytes_each": _each(statistics.median(resident) - idle["idle_bytes"], streams),
        "private_kilobytes_each": _each(statistics.median(private) - idle["idle_private_bytes"], streams),
        "tokens_s": round(carried.tokens / carried.seconds),
        "cpu_us": round(cpu_s * 1e6 / carried.tokens, 1),
    }


def _each(grown: float, streams: int) -> float:
    return round(grown / streams / 1000, 1)
