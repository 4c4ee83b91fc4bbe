"""Resident memory for each open stream: many streams at one token a second."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from .load import Load, run
from .processes import BenchmarkError, Child, SyntheticTriton, raise_file_limit
from .relay import Tell
from .subjects import Subject, body, start, transports, write_repository

STREAMS = (500, 2_000, 10_000)
_TOKENS = 12
_STARTS_S = 400  # streams started each second: what these machines take without falling behind
_SAMPLE_S = 0.25
_WARM_UP = Load("warm-up", 64, 0, 20)


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """One run for each gateway and number of streams, each in a fresh process."""
    del rounds  # memory varies little, and ten thousand streams take their time
    raise_file_limit()
    subjects = [Subject("naive", "tokens"), *(Subject("gateway", "tokens", name) for name in transports()[1])]
    rows = []
    with SyntheticTriton(write_repository()) as triton:
        for streams in STREAMS:
            for subject in subjects:
                rows.append({"subject": subject.name, "streams": streams, **_one(subject, triton, streams)})
                tell(f"{subject.name}, {streams} streams: {rows[-1]}")
    return {"rows": rows}


def _one(subject: Subject, triton: SyntheticTriton, streams: int) -> dict[str, Any]:
    load = Load("memory", streams, 1_000_000, _TOKENS + streams // _STARTS_S, stagger_us=1_000_000 // _STARTS_S)
    with start(subject, triton) as child:
        triton.pace(0)
        run(child, _WARM_UP, body(_WARM_UP.tokens))
        before = child.resident_bytes()
        triton.pace(load.delay_us)
        with _peak(child) as peak:
            try:
                result = run(child, load, body(load.tokens))
            except BenchmarkError as error:
                return {"error": str(error)}
        return {
            "idle_bytes": before,
            "peak_bytes": peak[0],
            "kilobytes_each": round((peak[0] - before) / streams / 1000, 1),
            "cpu_us": round(result.cpu_us or 0, 1),
        }


@contextlib.contextmanager
def _peak(child: Child) -> Any:
    """The largest resident memory of a process while the context is open, in a list of one."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_S):
            peak[0] = max(peak[0], child.resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
