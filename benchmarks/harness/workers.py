"""The scaling of worker processes: tokens and requests per second, CPU, and the resource that limits them."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import cores
from .load import Load, run
from .processes import BenchmarkError, Child, SyntheticTriton, free_port, raise_file_limit
from .relay import Tell
from .steady import SteadyLoad
from .subjects import PROMPT, Subject, body, launch, start, transports, write_repository

_LOADS = [Load(f"{streams}x10ms", streams, 10_000, 100_000) for streams in (256, 1024, 2048, 4096)]
_WORKERS = (1, 2, 4, 8, 12)
_GENERATORS = 4
_TRITONS = 16  # processes on one port: the kernel gives each connection to one of them, by chance
_WINDOW_S = 2.0
_CARRIED = 0.95  # of what is offered: all of it, but for the edges of a window
_FULL = 0.8  # of a core, or of all that there are: less than that on a machine that others use
_HOPELESS = 0.5  # of what is offered: no use in offering more
_AT_ONCE = 32  # requests for each worker
_ROUNDS = 120  # of them
_SHARE = 0.75  # of the cores for the gateway under requests, whose load costs little


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Each transport with 1, 2, 4 ... workers, up to the cores that there are, under growing loads.

    The gateway runs on cores of its own; several load generators and synthetic Tritons share the others.

    Args:
        rounds: windows of 2 seconds, of which the median counts.
        tell: is told of each row.

    Raises:
        BenchmarkError: a gateway did not start, or a stream ended.
    """
    raise_file_limit()
    rows = [row for transport in transports()[1] for row in scaling(transport, rounds, tell)]
    gateway, others = cores.split()
    return {
        "gateway_cores": len(gateway),
        "other_cores": len(others),
        "generators": _GENERATORS,
        "tritons": _TRITONS,
        "rounds": rounds,
        "rows": rows,
    }


def requests(rounds: int, tell: Tell) -> dict[str, Any]:
    """Requests per second of 1, 2, 4 ... workers on three quarters of the cores, each as busy as it can be.

    As many gateways apart, of one process each, take turns with them: what those do is what the machine allows.

    Args:
        rounds: runs, of which the median counts.
        tell: is told of each row.

    Raises:
        BenchmarkError: a gateway did not start, or an answer was not whole.
    """
    gateway_cores, others = cores.split(_SHARE)
    rows = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(cores.on(others))
        tritons = _start_tritons(stack, 0)
        for workers in [count for count in _WORKERS if count <= max(2, len(gateway_cores))]:
            row = _row(workers, gateway_cores, tritons, rounds)
            rows.append({"transport": transports()[0], "workers": workers, **row})
            tell(" ".join(f"{name}={value}" for name, value in rows[-1].items()))
    return {"gateway_cores": len(gateway_cores), "other_cores": len(others), "at_once": _AT_ONCE, "rows": rows}


def _row(workers: int, own: list[int], tritons: list[SyntheticTriton], rounds: int) -> dict[str, Any]:
    subject = Subject("gateway", "tokens", transports()[0])
    with contextlib.ExitStack() as stack:
        with cores.on(own):
            one = stack.enter_context(start(subject, tritons[0], workers=workers))
            many = [launch(subject, tritons[0], free_port(), label=f"apart-{number}") for number in range(workers)]
        for child in many:
            stack.enter_context(child)
            child.wait_http("/health/ready")
        runs: list[dict[str, float]] = []
        for _ in range(1 + rounds):
            together, apart = _requests([one], workers), _requests(many, workers)
            runs.append({**together, **{f"apart_{name}": value for name, value in apart.items()}})
        return _median(runs[1:])  # after a warm-up


def _requests(children: list[Child], workers: int) -> dict[str, float]:
    """Ask these gateways together: each connection goes to one of them by chance, as it would to a worker."""
    load = Load("requests", workers * _AT_ONCE // _GENERATORS, 0, 1, rounds=_ROUNDS)
    file = body(1, PROMPT)
    ports = ",".join(str(child.port) for child in children)
    before = {pid: child.cpu_s_of(pid) for child in children for pid in child.pids()}
    begun = time.perf_counter()
    with ThreadPoolExecutor(_GENERATORS) as pool:
        results = list(pool.map(lambda _: run(children[0], load, file, ports=ports), range(_GENERATORS)))
    seconds = time.perf_counter() - begun
    spent = sorted((children[0].cpu_s_of(pid) - cpu for pid, cpu in before.items()), reverse=True)
    return {
        "requests_s": sum(result.tokens_s for result in results),
        "cpu_ms": sum(spent) * 1000 / (load.streams * load.rounds * _GENERATORS),
        "busy": sum(spent) / seconds,
        "least_share": spent[workers - 1] * workers / sum(spent[:workers]),
        "most_share": spent[0] * workers / sum(spent[:workers]),
    }


def scaling(transport: str, rounds: int, tell: Tell) -> list[dict[str, Any]]:
    """The rows of one transport; see ``measure``."""
    gateway_cores, others = cores.split()
    subject = Subject("gateway", "tokens", transport)
    rows = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(cores.on(others))
        tritons = _start_tritons(stack, _LOADS[0].delay_us)
        for workers in [count for count in _WORKERS if count <= max(2, os.cpu_count() or 1)]:
            for load in _LOADS:
                row: dict[str, Any] = {"transport": transport, "workers": workers, "load": load.name}
                row["offered_s"] = _offered_s(load)
                with cores.on(gateway_cores):
                    child = start(subject, tritons[0], workers=workers)
                with child:
                    row |= _carried(child, load, tritons, rounds)
                if "error" not in row:
                    row["limit"] = _limit(row, len(gateway_cores), len(others))
                rows.append(row)
                tell(" ".join(f"{name}={value}" for name, value in row.items()))
                if row.get("tokens_s", 0) < _HOPELESS * row["offered_s"]:
                    break
    return rows


def _carried(child: Child, load: Load, tritons: list[SyntheticTriton], rounds: int) -> dict[str, Any]:
    """The figures of one load, or ``error``: under much more than it carries, a gateway may refuse requests.

    The first words of an error, up to a colon, are those for a table.
    """
    try:
        with SteadyLoad(child, load, body(load.tokens), _GENERATORS) as steady:
            steady.wait()
            steady.settle(_offered_s(load))
            return _median([_window(child, tritons, steady) for _ in range(rounds)])
    except BenchmarkError as error:
        return {"error": str(error)}


def _start_tritons(stack: contextlib.ExitStack, delay_us: int) -> list[SyntheticTriton]:
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
