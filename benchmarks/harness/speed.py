"""The present speed of the machine: the time of a fixed piece of work."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time

_TIMES = 1_200
_REPEATS = 40
_VALUE = {"model": "m", "messages": [{"role": "user", "content": "word " * 40}], "stop": None, "n": list(range(16))}


def reference_ms() -> float:
    """CPU milliseconds of the work: the interpreter, small objects, dictionaries, strings; some 20 ms."""
    begun = time.process_time()
    seen: dict[str, int] = {}
    for number in range(_TIMES):
        text = json.dumps({**_VALUE, "id": number})
        value = json.loads(text)
        for word in value["messages"][0]["content"].split():
            seen[f"{word}-{number % 7}"] = seen.get(word, 0) + len(text)
    return (time.process_time() - begun) * 1000


def reference_ms_of(processes: int) -> float:
    """CPU milliseconds of the work where so many processes do it at the same time, over and over."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return statistics.median(pool.map(_repeated, range(processes), chunksize=1))


def _repeated(_: int) -> float:
    return statistics.median(reference_ms() for _ in range(_REPEATS))
