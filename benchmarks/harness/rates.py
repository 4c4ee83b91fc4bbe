"""The delay that the gateway adds when requests come at a steady rate, beside answers of the same pace from Triton."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import cores
from .load import generate, parse
from .processes import BUILT, BenchmarkError, Child, SyntheticTriton, raise_file_limit
from .relay import Tell
from .subjects import KEY, PROMPT, Subject, body, start, transports, write_repository

_RATES_OF_A_WORKER = (25, 125, 250)
_SECONDS = 6
_TOKENS = 32
_DELAY_US = 5_000
_WORKERS = 4
_LATE_S = 1.0  # beyond which the load itself fell behind
_KINDS = ("direct", "streamed", "not streamed")
_FIGURES = ("ttft_us_p50", "ttft_us_p99", "end_us_p50", "end_us_p99")

Command = list[str | Path]
Run = Callable[[int], dict[str, float]]


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Each rate by each kind of request, the kinds taking turns within a round.

    The gateway has half of the cores, load and synthetic Triton the others.

    Args:
        rounds: runs of six seconds each, of which the median counts.
        tell: is told of each run.

    Raises:
        BenchmarkError: a gateway did not start, or an answer was not whole.
    """
    raise_file_limit()
    ours, others = cores.split()
    workers = min(_WORKERS, len(ours))
    with contextlib.ExitStack() as stack:
        stack.enter_context(cores.on(others))
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        triton.pace(_DELAY_US)
        with cores.on(ours):
            gateway = stack.enter_context(start(Subject("gateway", "tokens", transports()[0]), triton, workers=workers))
        runs = _runs(gateway, triton)
        for run in runs.values():
            run(_RATES_OF_A_WORKER[0])  # a warm-up
        rows = [_row(rate * workers, rounds, runs, tell) for rate in _RATES_OF_A_WORKER]
    return {
        "rounds": rounds,
        "workers": workers,
        "seconds": _SECONDS,
        "tokens": _TOKENS,
        "delay_ms": _DELAY_US / 1000,
        "cores": len(ours),
        "rows": rows,
    }


def _runs(gateway: Child, triton: SyntheticTriton) -> Mapping[str, Run]:
    streamed = body(_TOKENS, PROMPT).rename(BUILT / "streamed.json")
    plain = body(_TOKENS, PROMPT, stream=False, stream_options=None).rename(BUILT / "plain.json")

    def asked(file: Path, **env: str) -> Run:
        def run(rate: int) -> dict[str, float]:
            command: Command = [
                BUILT / "ssecli",
                str(gateway.port),
                str(rate * _SECONDS),
                "1",
                "/v1/chat/completions",
                file,
            ]
            cpu = gateway.cpu_s()
            found = _generated(command, rate, KEY=KEY, **env)
            return found | {"cpu_ms": (gateway.cpu_s() - cpu) * 1000 / (rate * _SECONDS)}

        return run

    def direct(rate: int) -> dict[str, float]:
        command: Command = [BUILT / "direct", str(triton.port), str(rate * _SECONDS), "1", str(_TOKENS)]
        return _generated(command, rate)

    return dict(zip(_KINDS, (direct, asked(streamed), asked(plain, PLAIN="1")), strict=True))


def _generated(command: Command, rate: int, **env: str) -> dict[str, float]:
    said = generate(command, {**env, "STAGGER_US": str(1_000_000 // rate)})
    figures = parse(said)
    if figures["done"] != rate * _SECONDS or figures["bad"]:
        raise BenchmarkError(f"{rate} requests a second: not every answer was whole: {said.strip()}")
    if figures["wall"] > _SECONDS + _TOKENS * _DELAY_US / 1e6 + _LATE_S:
        raise BenchmarkError(f"{rate} requests a second were not kept: {said.strip()}")
    return {name: figures[name] for name in _FIGURES}


def _row(rate: int, rounds: int, runs: Mapping[str, Run], tell: Tell) -> dict[str, Any]:
    """Medians over the rounds; what the gateway adds is taken within a round."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in _KINDS}
    for _ in range(rounds):
        for kind in _KINDS:
            found[kind].append(runs[kind](rate))
            tell(f"{rate}/s {kind}: {found[kind][-1]}")
    row: dict[str, Any] = {"rate": rate, "direct": _medians(found["direct"])}
    for kind in _KINDS[1:]:
        added = [
            {name: value - beside.get(name, 0) for name, value in each.items()}
            for each, beside in zip(found[kind], found["direct"], strict=True)
        ]
        row[kind] = _medians(added)
    return row


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
