"""Tokens per second by worker processes, CPU, and the resource that limits them."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

from . import cores
from .load import Load
from .processes import BenchmarkError, Child, SyntheticTriton, raise_file_limit
from .relay import Tell
from .steady import SteadyLoad
from .subjects import Subject, body, start, transports, write_repository

_LIGHT = 256  # streams, however many workers there are
_HEAVY = 512, 1024  # streams for each worker: about what one carries, and twice as much
_DELAY_US = 10_000  # between the tokens of a stream
_TOKENS = 100_000  # of an answer: it does not end
WORKERS = (1, 2, 4, 8, 12)
_LEAST_GENERATORS = 4
_CORES_PER_GENERATOR = 2  # one takes some 100,000 tokens/s
_TRITONS = 16  # processes on one port: the kernel gives each connection to one of them, by chance
_WINDOW_S = 2.0
_CARRIED = 0.95  # of what is offered: all of it, but for the edges of a window
_FULL = 0.8  # of a core, or of all that there are: less than that on a machine that others use


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """The default transport with 1, 2, 4 ... workers, up to the cores that there are, under growing loads.

    The gateway runs on cores of its own; several load generators and synthetic Tritons share the others.

    Args:
        rounds: windows of 2 seconds, of which the median counts.
        tell: is told of each row.

    Raises:
        BenchmarkError: a gateway did not start, or a stream ended.
    """
    raise_file_limit()
    gateway, others = cores.split()
    rows = _rows(gateway, others, rounds, tell)
    return {
        "gateway_cores": len(gateway),
        "other_cores": len(others),
        "generators": generators(others),
        "tritons": _TRITONS,
        "rounds": rounds,
        "rows": rows,
    }


def generators(others: Sequence[int]) -> int:
    """The number of load generators on these cores."""
    return max(_LEAST_GENERATORS, len(others) // _CORES_PER_GENERATOR)


def _rows(own: Sequence[int], others: Sequence[int], rounds: int, tell: Tell) -> list[dict[str, Any]]:
    subject = Subject("gateway", "tokens", transports()[0])
    rows = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(cores.on(others))
        tritons = start_tritons(stack, _DELAY_US)
        for workers in [count for count in WORKERS if count <= max(2, len(own))]:
            for each in (None, *_HEAVY):
                streams = each * workers if each else _LIGHT
                load = Load(f"{streams}x10ms", streams, _DELAY_US, _TOKENS)
                row: dict[str, Any] = {"transport": subject.transport, "workers": workers, "load": load.name}
                row |= {"streams_each": each, "offered_s": _offered_s(load)}
                with cores.on(own):
                    child = start(subject, tritons[0], workers=workers)
                with child:
                    row |= _carried(child, load, tritons, generators(others), rounds)
                if "error" not in row:
                    row["limit"] = _limit(row, len(own), len(others))
                rows.append(row)
                tell(" ".join(f"{name}={value}" for name, value in row.items()))
    return rows


def _carried(child: Child, load: Load, tritons: list[SyntheticTriton], processes: int, rounds: int) -> dict[str, Any]:
    """The figures of one load, or ``error``: under much more than it carries, a gateway may refuse requests.

    The first words of an error, up to a colon, are those for a table.
    """
    try:
        with SteadyLoad(child, load, body(load.tokens), processes) as steady:
            steady.wait()
            steady.settle(_offered_s(load))
            return _median([_window(child, tritons, steady) for _ in range(rounds)])
    except BenchmarkError as error:
        return {"error": str(error)}


def start_tritons(stack: contextlib.ExitStack, delay_us: int) -> list[SyntheticTriton]:
    """Start several on one port, which answer at one pace."""
    repository = write_repository()
    tritons = [stack.enter_context(SyntheticTriton(repository))]
    while len(tritons) < _TRITONS:
        tritons.append(stack.enter_context(SyntheticTriton(repository, beside=tritons)))
    for triton in tritons:
        triton.pace(delay_us)
    return tritons


def _offered_s(load: Load) -> int:
    return load.streams * 1_000_000 // load.delay_us


def _window(gateway: Child, tritons: list[SyntheticTriton], steady: SteadyLoad) -> dict[str, float]:
    steady.figures()
    begun, gateway_s, tritons_s = time.perf_counter(), gateway.cpu_s(), [triton.cpu_s() for triton in tritons]
    time.sleep(_WINDOW_S)
    gateway_s = gateway.cpu_s() - gateway_s
    tritons_s = [triton.cpu_s() - before for triton, before in zip(tritons, tritons_s, strict=True)]
    seconds = time.perf_counter() - begun
    carried = steady.figures()
    tokens_s = carried.tokens / carried.seconds
    return {
        "tokens_s": tokens_s,
        "cpu_us": gateway_s / seconds * 1e6 / tokens_s,
        "busy": gateway_s / seconds,
        "others_busy": sum(tritons_s) / seconds + carried.cores,
        "others_busiest": max(max(tritons_s) / seconds, carried.busiest),
    }


def _median(windows: list[dict[str, float]]) -> dict[str, Any]:
    return {name: round(statistics.median(window[name] for window in windows), 2) for name in windows[0]}


def _limit(row: dict[str, Any], gateway_cores: int, other_cores: int) -> str:
    """The limiting resource: the offer, the workers, the gateway's cores or the load's; ``unclear`` without one."""
    if row["tokens_s"] >= _CARRIED * row["offered_s"]:
        return "offer"
    full = {
        "workers": row["busy"] / row["workers"],
        "gateway's cores": row["busy"] / gateway_cores,
        "load": max(row["others_busy"] / other_cores, row["others_busiest"]),
    }
    fullest = max(full, key=lambda name: full[name])
    return fullest if full[fullest] >= _FULL else "unclear"
