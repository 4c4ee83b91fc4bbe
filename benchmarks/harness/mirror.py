"""The cost of a mirror: what it adds to the gateway that clients are served by, and what its own process spends."""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from .load import Load, Result, run
from .processes import BenchmarkError, SyntheticTriton, free_port
from .relay import Tell
from .subjects import Subject, body, start, tokenizer_folder, transports, write_repository

OFF, ON = "without a mirror", "with a mirror, share 1.0"
_LOADS = (Load("64x20ms", 64, 20_000, 150, rounds=2), Load("burst", 64, 0, 150, rounds=8))
_SETTLED_S = 120.0


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
        plain = stack.enter_context(start(subject, first, label="unmirrored"))
        off = _OneProcess(plain.port, plain.process.pid)
        on = _start_mirrored(stack, subject, first, second)
        rows: dict[str, list[dict[str, float]]] = {load.name: [] for load in _LOADS}
        for number in range(-1, rounds):
            for load in _LOADS:
                first.pace(load.delay_us)
                second.pace(load.delay_us)
                found = _slice(off, on, load, first_on=number % 2 == 0)
                if number >= 0:  # the first is a warm-up
                    rows[load.name].append(found)
            tell(f"run {number + 1} of {rounds}: { {name: said[-1:] for name, said in rows.items()} }")
        report = on.settled()
    copies = {"sent": report["requests"]["sent"], "equal": report["requests"]["equal"], **report["mirror"]["dropped"]}
    return {"rounds": rounds, "rows": {name: _medians(said) for name, said in rows.items()}, "copies": copies}


def _start_mirrored(stack: ExitStack, subject: Subject, first: SyntheticTriton, second: SyntheticTriton) -> _Pair:
    internal = free_port()
    model = {"mirror": {"to": "second", "share": 1.0, "at_once": 64, "waiting": 10_000}}
    triton = {"url": f"127.0.0.1:{second.port}", "model": "ensemble", "transport": subject.transport}
    other = {
        "name": "second", "triton": triton, "path": "tokens", "tokenizer": str(tokenizer_folder()), "max_seq_len": 8192,
    }  # fmt: skip
    child = stack.enter_context(
        start(subject, first, label="mirrored", model=model, more_models=[other], internal_port=internal)
    )
    copies = [pid for pid in child.pids() if b"mirror_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    pair = _Pair(_OneProcess(child.port, child.process.pid), _OneProcess(child.port, copies[0]), internal)
    end = time.monotonic() + _SETTLED_S
    while not _report(internal).get("mirror", {}).get("processes"):
        if time.monotonic() > end:
            raise BenchmarkError("the process of the copies did not start")
        time.sleep(0.2)
    return pair


def _slice(off: _OneProcess, on: _Pair, load: Load, *, first_on: bool) -> dict[str, float]:
    """One turn of both, one right after the other; copies come to their end before anything else is measured."""
    file = body(load.tokens, temperature=0)
    results: dict[str, Result] = {}
    for name in (ON, OFF) if first_on else (OFF, ON):
        spent = on.copies.cpu_s()
        results[name] = run(on.clients if name == ON else off, load, file)
        on.settled()
        if name == ON:
            copies_us = (on.copies.cpu_s() - spent) * 1e6 / (load.streams * load.rounds * load.tokens)
    return {
        "off_us": results[OFF].cpu_us or 0.0,
        "on_us": results[ON].cpu_us or 0.0,
        "copies_us": copies_us,
        "off_first_ms": results[OFF].first_p99 / 1000,
        "on_first_ms": results[ON].first_p99 / 1000,
        "off_tokens_s": results[OFF].tokens_s,
        "on_tokens_s": results[ON].tokens_s,
    }


def _medians(said: Sequence[dict[str, float]]) -> dict[str, float]:
    found = {key: round(statistics.median(each[key] for each in said), 2) for key in said[0]}
    ratios = sorted(each["on_us"] / each["off_us"] for each in said)
    return {
        **found,
        "factor": round(statistics.median(ratios), 3),
        "least": round(ratios[0], 3),
        "most": round(ratios[-1], 3),
    }


def _report(port: int) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/mirror", timeout=20) as answer:
            return orjson.loads(answer.read())  # type: ignore[no-any-return]
    except OSError:
        return {}
