"""CPU per relayed token, tokens per second and delay: this gateway beside the naive one, in interleaved runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from .load import Load, Result, run, run_direct
from .processes import Child, SyntheticTriton
from .subjects import Subject, body, start, transports, write_repository

LOADS = (
    Load("64x20ms", 64, 20_000, 150),
    Load("256x10ms", 256, 10_000, 100),
    Load("burst", 64, 0, 300),
)
SWEEP = (1, 8, 64, 256, 512)
WARM_UP = Load("warm-up", 16, 0, 50)
_SPREAD_US = 500_000  # over which the streams of the sweep start: its delays are those of a steady state
DIRECT = "direct (C++)"

Tell = Callable[[str], None]


def subjects() -> tuple[list[Subject], str]:
    """Choose all subjects and the name of this gateway's default transport."""
    default, known = transports()
    found = [Subject("naive", "tokens"), Subject("naive", "text")]
    for transport in known:
        found += [Subject("gateway", "tokens", transport), Subject("gateway", "text", transport)]
    return found, default


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Run everything ``rounds`` times in turn, then a sweep over the number of streams.

    Raises:
        BenchmarkError: a gateway did not start, or answered wrongly.
    """
    found, default = subjects()
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        children = {subject: stack.enter_context(start(subject, triton)) for subject in found}
        for child in children.values():
            run(child, WARM_UP, body(WARM_UP.tokens))
        loads = _interleaved(triton, children, LOADS, rounds, tell)
        sweep_loads = [Load(str(streams), streams, 20_000, 100, stagger_us=_SPREAD_US // streams) for streams in SWEEP]
        text = {subject: child for subject, child in children.items() if subject.dialect == "text"}
        sweep = _interleaved(triton, text, sweep_loads, min(rounds, 3), tell)
        resident = {subject.name: child.resident_bytes() for subject, child in children.items()}
    return {
        "rounds": rounds,
        "default_transport": default,
        "loads": loads,
        "sweep": sweep,
        "resident_bytes": resident,
        "ratios": {name: _ratio(loads[name], default) for name in loads},
    }


def _interleaved(
    triton: SyntheticTriton, children: dict[Subject, Child], loads: Any, rounds: int, tell: Tell
) -> dict[str, Any]:
    """Medians by load and subject, the spread of CPU beside them."""
    runs: dict[str, dict[str, list[Result]]] = {load.name: {} for load in loads}
    for number in range(1, rounds + 1):
        for load in loads:
            begun = time.perf_counter()
            triton.pace(load.delay_us)
            for subject, child in children.items():
                runs[load.name].setdefault(subject.name, []).append(run(child, load, body(load.tokens)))
            runs[load.name].setdefault(DIRECT, []).append(run_direct(triton.port, load))
            tell(f"run {number} of {rounds}, {load.name}: {time.perf_counter() - begun:.0f} s")
    return {load: {name: summary(results) for name, results in named.items()} for load, named in runs.items()}


def summary(results: list[Result]) -> dict[str, Any]:
    """Medians of the runs, the spread of CPU beside them."""
    cpu = [result.cpu_us for result in results if result.cpu_us is not None]
    return {
        **Result.median(results).as_json(),
        "cpu_us_least": round(min(cpu), 2) if cpu else None,
        "cpu_us_most": round(max(cpu), 2) if cpu else None,
    }


def _ratio(load: dict[str, Any], transport: str) -> float:
    """CPU per token of this gateway, tokens dialect and default transport, as a part of the naive one's."""
    ours, naive = (Subject("gateway", "tokens", transport), Subject("naive", "tokens"))
    return round(float(load[ours.name]["cpu_us"] / load[naive.name]["cpu_us"]), 3)


def last_line(values: dict[str, Any]) -> str:
    """Sum up the results in one line."""
    return "cpu_per_token_vs_naive " + " ".join(f"{name}={ratio:.2f}" for name, ratio in values["ratios"].items())
