"""The rate of first and of later turns that a gateway holds: the knee, by the length of the conversation."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import cores
from .load import generate, parse
from .processes import BUILT, BenchmarkError, Child, SyntheticTriton, raise_file_limit
from .relay import Tell
from .subjects import KEY, Subject, start, transports, write_repository
from .turns import SIZES, Size, conversations, more

_WORKERS = 4
_SECONDS = 4
_KNOWN = 32  # conversations of which later turns are asked
_TURNS = 8  # later ones of each of them
# Later than the median at the first rate; such a 99th percentile of first events is behind the knee.
_LATE_MS = 150.0
_FIRST_RATES = 5, 10, 25, 50, 100, 200, 400, 800
_LATER_RATES = 100, 200, 300, 400, 600, 800, 1200, 1600
_MARGIN_S = 1.0


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Growing rates of turns for each length, up to the first that is not held.

    The gateway has as many cores as workers, load and synthetic Triton the others.

    Args:
        rounds: runs of four seconds at each rate, of which the median counts.
        tell: is told of each rate.

    Raises:
        BenchmarkError: a gateway did not start.
    """
    raise_file_limit()
    ours, others = cores.split()
    ours = ours[:_WORKERS]
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(cores.on(others))
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        triton.pace(0)
        with cores.on(ours):
            subject = Subject("gateway", "tokens", transports()[0])
            gateway = stack.enter_context(start(subject, triton, workers=len(ours)))
        for size in SIZES:
            for turn, rates in (("first", _FIRST_RATES), ("later", _LATER_RATES)):
                rows += _held(gateway, size, turn, rates, rounds, tell)
    return {"workers": len(ours), "rounds": rounds, "seconds": _SECONDS, "late_ms": _LATE_MS, "rows": rows}


def _held(
    gateway: Child, size: Size, turn: str, rates: Sequence[int], rounds: int, tell: Tell
) -> Iterator[dict[str, Any]]:
    """Rates up to the first that is not held."""
    usual = None
    for rate in rates:
        found = [_run(gateway, size, turn, rate, f"{rate} {number}") for number in range(rounds)]
        row = {name: round(statistics.median(each[name] for each in found), 2) for name in found[0]}
        usual = row["first_event_p50"] if usual is None else usual
        held = row["late_s"] < _MARGIN_S and row["first_event_p99"] < usual + _LATE_MS
        tell(f"{size.tokens} {turn} {rate}: {row}")
        yield {"prompt": size.tokens, "turn": turn, "rate": rate, **row, "held": held}
        if not held:
            return


def _run(gateway: Child, size: Size, turn: str, rate: int, seed: str) -> dict[str, float]:
    """Requests at a steady rate, each on a connection of its own.

    Raises:
        BenchmarkError: an answer was not whole.
    """
    count = rate * _SECONDS
    file = BUILT / "turns.json"
    if turn == "first":
        _write(file, itertools.islice(_endless(size, seed), count))
    else:
        talks = list(itertools.islice(_endless(size, "known"), _KNOWN))
        _write(file, talks)
        _generate(gateway, file, _KNOWN, 20)  # they are known from here on; asked again, they cost little
        _write(file, [talk + more(1 + number // len(talks)) for number, talk in enumerate(talks * _TURNS)])
    cpu = gateway.cpu_s()
    figures = _generate(gateway, file, count, rate)
    return {
        "first_event_p50": figures["ttft_us_p50"] / 1000,
        "first_event_p99": figures["ttft_us_p99"] / 1000,
        "cpu_ms": (gateway.cpu_s() - cpu) * 1000 / count,
        "late_s": figures["wall"] - count / rate,
    }


def _generate(gateway: Child, file: Path, count: int, rate: int) -> dict[str, float]:
    command: list[str | Path] = [BUILT / "ssecli", str(gateway.port), str(count), "1", "/v1/chat/completions", file]
    said = generate(command, {"KEY": KEY, "STAGGER_US": str(1_000_000 // rate)})
    figures = parse(said)
    if figures["done"] != count or figures["bad"]:
        raise BenchmarkError(f"{rate} turns a second: not every answer was whole: {said.strip()}")
    return figures


def _endless(size: Size, seed: str) -> Iterator[list[dict[str, str]]]:
    """Conversations of a size, as many as are wanted."""
    for number in itertools.count():
        yield from conversations(Size(size.tokens, size.messages, math.ceil(_KNOWN / 4)), f"{seed} {number}")


def _write(file: Path, talks: Sequence[list[dict[str, str]]] | Iterator[list[dict[str, str]]]) -> None:
    bodies = [json.dumps({"model": "bench", "max_tokens": 2, "stream": True, "messages": talk}) for talk in talks]
    file.write_text("\0".join(bodies))
