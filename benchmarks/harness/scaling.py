"""Requests per second by worker processes, beside as many gateways apart and what the machine's cores lose together."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import cores
from .load import Load, run
from .processes import ROOT, BenchmarkError, Child, SyntheticTriton, free_port, raise_file_limit
from .relay import Tell
from .subjects import PROMPT, Subject, body, launch, start, transports
from .workers import WORKERS, start_tritons

_AT_ONCE = 64  # requests for each worker
_ROUNDS = 30  # of them
_GENERATORS = 4
_SHARE = 0.75  # of the cores for the gateway, whose load costs little
_SPEED = [sys.executable, "-m", "benchmarks.harness.speed"]

Figures = Mapping[str, float]


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Requests per second of 1, 2, 4 ... workers, each as busy as it can be.

    All gateways are kept up and take turns within a round, as the speed of the machine changes. As many gateways apart,
    of one process each, show what several cost without sharing anything; reference work of so many processes at once
    shows what the cores lose when others are busy.

    Args:
        rounds: turns of all, of which the median counts; one more is a warm-up.
        tell: is told of each turn.

    Raises:
        BenchmarkError: a gateway did not start, or an answer was not whole.
    """
    raise_file_limit()
    own, others = cores.split(_SHARE)
    counts = [count for count in WORKERS if count <= max(2, len(own))]
    with contextlib.ExitStack() as stack:
        stack.enter_context(cores.on(others))
        tritons = start_tritons(stack, 0)
        with cores.on(own):
            gateways, apart = _start(stack, counts, tritons[0])
        turns: list[Mapping[int, Figures]] = []
        for number in range(rounds + 1):
            order = counts if number % 2 else counts[::-1]  # what comes after the most workers finds a warmer machine
            turns.append({count: _turn(count, gateways[count], apart[:count], own, number) for count in order})
            tell(f"turn {number} of {rounds}: {turns[-1]}")
    return {
        "gateway_cores": len(own),
        "other_cores": len(others),
        "at_once": _AT_ONCE,
        "rounds": rounds,
        "transport": transports()[0],
        "rows": [row(count, turns[1:]) for count in counts],
    }


def _start(
    stack: contextlib.ExitStack, counts: Sequence[int], triton: SyntheticTriton
) -> tuple[dict[int, Child], list[Child]]:
    """A gateway for each number of workers, and as many of one process as the most of them."""
    subject = Subject("gateway", "tokens", transports()[0])
    gateways = {
        count: stack.enter_context(start(subject, triton, label=f"of-{count}", workers=count)) for count in counts
    }
    apart = [
        stack.enter_context(launch(subject, triton, free_port(), label=f"apart-{number}"))
        for number in range(max(counts))
    ]
    for child in apart:
        child.wait_http("/health/ready")
    return gateways, apart


def _turn(count: int, gateway: Child, apart: Sequence[Child], own: list[int], number: int) -> Figures:
    if number % 2:
        together, alone = _requests([gateway], count), _requests(apart, count)
    else:
        alone, together = _requests(apart, count), _requests([gateway], count)
    with cores.on(own):
        reference = _reference_ms(count)
    return {**together, **{f"apart_{name}": value for name, value in alone.items()}, "reference_ms": reference}


def _requests(children: Sequence[Child], count: int) -> Figures:
    """Ask these gateways together: each connection goes to one of them by chance, as it would to a worker."""
    load = Load("requests", count * _AT_ONCE // _GENERATORS, 0, 1, rounds=_ROUNDS)
    file = body(1, PROMPT)
    ports = ",".join(str(child.port) for child in children)
    before = {pid: child.cpu_s_of(pid) for child in children for pid in child.pids()}
    with ThreadPoolExecutor(_GENERATORS) as pool:
        results = list(pool.map(lambda _: run(children[0], load, file, ports=ports), range(_GENERATORS)))
    spent = sorted((children[0].cpu_s_of(pid) - cpu for pid, cpu in before.items()), reverse=True)
    return {
        "requests_s": sum(result.tokens_s for result in results),
        "cpu_ms": sum(spent) * 1000 / (load.streams * load.rounds * _GENERATORS),
        "least_share": spent[count - 1] * count / sum(spent[:count]),
        "most_share": spent[0] * count / sum(spent[:count]),
    }


def _reference_ms(count: int) -> float:
    """CPU milliseconds of the reference work in so many processes at once."""
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(_SPEED, cwd=ROOT, stdout=subprocess.PIPE, text=True))
            for _ in range(count)
        ]
        said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise BenchmarkError("the reference work failed")
    return statistics.mean(float(each) for each in said)


def row(count: int, turns: Sequence[Mapping[int, Figures]]) -> dict[str, Any]:
    """Medians over the turns; what is put in relation to one worker was measured in the same turn."""
    found = {name: _median([turn[count][name] for turn in turns], 2) for name in turns[0][count]}
    each = {
        f"{kind}of_one": _median(
            [turn[count][f"{kind}requests_s"] / count / turn[1][f"{kind}requests_s"] for turn in turns]
        )
        for kind in ("", "apart_")
    }
    reference = _median([turn[count]["reference_ms"] / turn[1]["reference_ms"] for turn in turns])
    over = _median([turn[count]["requests_s"] / turn[count]["apart_requests_s"] for turn in turns])
    return {"workers": count, **found, **each, "reference_of_one": reference, "over_apart": over}


def _median(values: Sequence[float], digits: int = 3) -> float:
    return round(statistics.median(values), digits)
