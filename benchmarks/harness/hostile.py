"""Hostile inputs: the time and memory that they take, and the wait of other clients meanwhile."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .client import call
from .hostile_inputs import CONTEXTS, Attack, inputs, is_large
from .lag import lag, probed
from .processes import ROOT, BenchmarkError, Child, SyntheticTriton
from .relay import Tell
from .subjects import Subject, write_repository

_MEMORY = 6 * 2**30  # address space of a gateway that is attacked, most of which is never touched
_CPU_S = 300
_IDLE_S = 3.0
_SETTLE_S = 0.5
_PAUSE_S = 0.2
_WARM_UP = {"model": "bench", "max_tokens": 1, "messages": [{"role": "user", "content": "a " * 40_000}]}


def measure(rounds: int, tell: Tell, only: Sequence[str] = ("",)) -> dict[str, Any]:
    """Send each input ``rounds`` times in turn to a fresh gateway.

    Args:
        rounds: how often.
        tell: of each row.
        only: inputs with one of these in their name.

    Returns:
        Rows with whether the input is a large body, the most by which the process grew, the most memory of its helpers,
        the longest time for which its event loop was held, and the slowest ``/health/live``, at rest and meanwhile.

    Raises:
        BenchmarkError: no input has such a name.
    """
    rows = []
    with SyntheticTriton(write_repository()) as triton:
        for name, attack in inputs():
            if not any(part in name for part in only):
                continue
            row = {"input": name, "large": is_large(attack), **_attacked(attack, triton, rounds, CONTEXTS.get(name))}
            rows.append(row)
            tell(" ".join(f"{key}={value}" for key, value in row.items()))
    if not rows:
        raise BenchmarkError(f"no input has {' or '.join(only)} in its name")
    return {"rounds": rounds, "rows": rows}


def _attacked(attack: Attack, triton: SyntheticTriton, rounds: int, context: int | None) -> dict[str, Any]:
    model = {"allow_request_template": True} | ({"max_seq_len": context} if context else {})
    subject = Subject("gateway", "tokens", "h2")
    with probed(subject, triton, model=model) as child:
        _cap(child)
        # The helpers are there, and so are the threads.
        call(child, "POST", "/v1/chat/completions", json.dumps({**_WARM_UP, "ignored": ["a"] * 70_000}).encode())
        time.sleep(_SETTLE_S)
        pid = child.process.pid
        with _asked_for_health(child) as idle:
            time.sleep(_IDLE_S)
        rest = child.resident_of(pid)
        child.forget_most()
        lag(child)
        with _asked_for_health(child) as meanwhile:
            outcomes = [_outcome(attack, child) for _ in range(rounds)]
        alive = child.process.poll() is None
        return {
            "outcome": " / ".join(dict.fromkeys(outcomes)) if alive else "the process ended",
            "grown_bytes": child.most_resident_of(pid) - rest if alive else None,
            "helpers_bytes": sum(child.most_resident_of(one) for one in child.pids() if one != pid) if alive else None,
            "loop_ms": lag(child) if alive else None,
            "idle": idle,
            "meanwhile": meanwhile,
        }


def _outcome(attack: Attack, child: Child) -> str:
    try:
        return attack(child)
    except (OSError, BenchmarkError) as error:
        return type(error).__name__
    finally:
        time.sleep(_PAUSE_S)


def _cap(child: Child) -> None:
    """Bound the memory and the CPU time of a process that is about to be attacked."""
    resource.prlimit(child.process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.prlimit(child.process.pid, resource.RLIMIT_CPU, (_CPU_S, _CPU_S))


@contextlib.contextmanager
def _asked_for_health(child: Child) -> Iterator[dict[str, Any]]:
    """Probe ``/health/live`` while the context lasts; its figures are there afterwards."""
    figures: dict[str, Any] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.harness.health_probe", str(child.port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as probe:  # fmt: skip
        _line(probe)
        try:
            yield figures
        finally:
            figures |= json.loads(probe.communicate(timeout=60)[0])


def _line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None or not (line := process.stdout.readline()):
        raise BenchmarkError("the probe did not start")
    return line
