"""The cost of a mirror: what it adds to the gateway that clients are served by, and what its own process spends."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from .load import Load, run
from .processes import ROOT, BenchmarkError, SyntheticTriton, free_port
from .relay import Tell
from .subjects import Subject, body, start, tokenizer_folder, transports, write_repository

OFF, ON, HANDED = "off", "on", "handed"
"""Without a mirror; with one of all requests; with one whose process takes the copies and asks nobody, to see what the
process of the clients does for copies without another busy process beside it."""

_LOADS = (Load("64x20ms", 64, 20_000, 150, rounds=2), Load("burst", 64, 0, 150, rounds=8))
_SETTLED_S = 120.0
_PROBE = "benchmarks.harness.mirror_probe"


class _OneProcess:
    """One process of a gateway, and what it alone spends."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._tasks = Path(f"/proc/{pid}/task")

    def cpu_s(self) -> float:
        """CPU seconds by the scheduler's own account, which counts in nanoseconds."""
        return sum(int((task / "schedstat").read_text().split()[0]) for task in self._tasks.iterdir()) / 1e9


@dataclass(frozen=True)
class _Pair:
    """A gateway with a mirror.

    Attributes:
        clients: the process that serves them.
        copies: the one that takes copies.
        internal: port of the report.
    """

    clients: _OneProcess
    copies: _OneProcess
    internal: int

    def settled(self) -> dict[str, Any]:
        """The report, once no copy is under way.

        Raises:
            BenchmarkError: one is for minutes.
        """
        end = time.monotonic() + _SETTLED_S
        while time.monotonic() < end:
            found = _report(self.internal)
            if found["mirror"]["processes"] and not found["mirror"]["running"] + found["mirror"]["waiting"]:
                return found
            time.sleep(0.2)
        raise BenchmarkError("copies do not come to their end")


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """CPU of a token with and without a mirror, in turns.

    Raises:
        BenchmarkError: a gateway did not start, or did not answer.
    """
    with ExitStack() as stack:
        repository = write_repository()
        first, second = (stack.enter_context(SyntheticTriton(repository)) for _ in range(2))
        subject = Subject("gateway", "tokens", transports()[0])
        other = _second_model(subject, second)
        plain = stack.enter_context(start(subject, first, label=OFF, more_models=[other], internal_port=free_port()))
        off = _OneProcess(plain.port, plain.process.pid)
        pairs = {
            ON: _start_mirrored(stack, subject, (first, second), ON),
            HANDED: _start_mirrored(stack, subject, (first, second), HANDED, drawn=False),
        }
        rows: dict[str, list[dict[str, float]]] = {load.name: [] for load in _LOADS}
        for number in range(-1, rounds):
            for load in _LOADS:
                first.pace(load.delay_us)
                second.pace(load.delay_us)
                found = _slice(off, pairs, load, number)
                if number >= 0:  # the first is a warm-up
                    rows[load.name].append(found)
            tell(f"run {number + 1} of {rounds}: { {name: _medians(said) for name, said in rows.items() if said} }")
        report = pairs[ON].settled()
    own = subprocess.run([sys.executable, "-m", _PROBE], cwd=ROOT, check=True, capture_output=True).stdout
    copies = {"sent": report["requests"]["sent"], "equal": report["requests"]["equal"], **report["mirror"]["dropped"]}
    return {
        "rounds": rounds,
        "rows": {name: _medians(said) for name, said in rows.items()},
        "copies": copies,
        "own": orjson.loads(own),
    }


def _start_mirrored(
    stack: ExitStack, subject: Subject, tritons: tuple[SyntheticTriton, SyntheticTriton], label: str, **more: Any
) -> _Pair:
    internal = free_port()
    model = {"mirror": {"to": "second", "share": 1.0, "at_once": 64, "waiting": 10_000, **more}}
    other = _second_model(subject, tritons[1])
    child = stack.enter_context(
        start(subject, tritons[0], label=label, model=model, more_models=[other], internal_port=internal)
    )
    copies = [pid for pid in child.pids() if b"mirror_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    pair = _Pair(_OneProcess(child.port, child.process.pid), _OneProcess(child.port, copies[0]), internal)
    end = time.monotonic() + _SETTLED_S
    while not _report(internal).get("mirror", {}).get("processes"):
        if time.monotonic() > end:
            raise BenchmarkError("the process of the copies did not start")
        time.sleep(0.2)
    return pair


def _second_model(subject: Subject, triton: SyntheticTriton) -> dict[str, Any]:
    return {
        "name": "second",
        "triton": {"url": f"127.0.0.1:{triton.port}", "model": "ensemble", "transport": subject.transport},
        "path": "tokens",
        "tokenizer": str(tokenizer_folder()),
        "max_seq_len": 8192,
    }


def _slice(off: _OneProcess, pairs: Mapping[str, _Pair], load: Load, turn: int) -> dict[str, float]:
    """One turn of all, one right after the other; copies come to their end before anything else is measured."""
    file = body(load.tokens)
    names = [OFF, *pairs]
    found: dict[str, float] = {}
    for name in (*names[turn % 3 :], *names[: turn % 3]):
        pair = pairs.get(name)
        spent = pair.copies.cpu_s() if pair else 0.0
        result = run(pair.clients if pair else off, load, file)
        if pair:
            pair.settled()
            spent = pair.copies.cpu_s() - spent
            found[f"{name}_copies_us"] = spent * 1e6 / (load.streams * load.rounds * load.tokens)
        found |= {f"{name}_us": result.cpu_us or 0.0, f"{name}_first_ms": result.first_p99 / 1000}
    return found


def _medians(said: Sequence[dict[str, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {key: round(statistics.median(each[key] for each in said), 2) for key in said[0]}
    for name in (ON, HANDED):
        ratios = sorted(each[f"{name}_us"] / each[f"{OFF}_us"] for each in said)
        found[f"{name}_factor"] = round(statistics.median(ratios), 3)
        found[f"{name}_range"] = f"{ratios[0]:.3f}-{ratios[-1]:.3f}"
    return found


def _report(port: int) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/mirror", timeout=20) as answer:
            return orjson.loads(answer.read())  # type: ignore[no-any-return]
    except OSError:
        return {}
