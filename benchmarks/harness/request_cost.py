"""The cost of a request besides its tokens; start-up time and memory of a process."""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .client import call
from .load import Load, run
from .processes import ROOT, Child, SyntheticTriton, free_port
from .relay import Tell
from .speed import reference_ms
from .subjects import PROMPT, Subject, body, launch, settings_file, start, transports, write_repository

NAIVE = Subject("naive", "tokens").name
_SLICE = Load("requests", 8, 0, 1, rounds=40)
_TURNS = 6  # of all subjects in each round


@dataclass(frozen=True)
class Turn:
    """One short slice of load on each subject, one right after the other.

    Attributes:
        cpu_ms: CPU of a request, by subject.
        references_ms: time of the reference work beside each of these slices.
        preparation_ms: time of template and tokenization of a request, clocked within a gateway in the same turn.
    """

    cpu_ms: Mapping[str, float]
    references_ms: Mapping[str, float]
    preparation_ms: float


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """CPU per request of one token with a prompt of about 200, start-up time and resident memory.

    All servers are kept up and take turns, as the speed of a machine changes.
    """
    gateways = [Subject("gateway", "tokens", name) for name in transports()[1]]
    turns: list[Turn] = []
    ready: dict[str, list[tuple[float, int]]] = {subject.name: [] for subject in gateways}
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        subjects = [Subject("naive", "tokens"), *gateways]
        children = {subject.name: stack.enter_context(start(subject, triton)) for subject in subjects}
        probe = stack.enter_context(_probe(triton))
        triton.pace(0)
        _turn(children, probe, 0)  # a warm-up
        tokens = int(_preparation(probe)["tokens"])
        for number in range(1, rounds + 1):
            turns += [_turn(children, probe, index) for index in range(_TURNS)]
            for subject in gateways:
                ready[subject.name].append(_ready(subject, triton))
            tell(f"round {number} of {rounds}: {summary(turns[-_TURNS:])}")
        resident = {name: child.resident_bytes() for name, child in children.items()}
    found = summary(turns)
    for name, row in found["subjects"].items():
        starts = ready.get(name)
        row["ready_s"] = round(statistics.median(seconds for seconds, _ in starts), 2) if starts else None
        row["resident_ready_bytes"] = int(statistics.median(size for _, size in starts)) if starts else None
        row["resident_after_bytes"] = resident[name]
    return {"prompt_tokens": tokens, "slices": len(turns), "requests": _SLICE.streams * _SLICE.rounds, **found}


def summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """Medians over the turns: of each subject, of its ratio to the naive gateway, of template and tokenization.

    What is put in relation was measured in the same turn.
    """
    references = [each for turn in turns for each in turn.references_ms.values()]
    return {
        "preparation_ms": round(statistics.median(turn.preparation_ms for turn in turns), 3),
        "reference_ms": {
            "median": round(statistics.median(references), 1),
            "least": round(min(references), 1),
            "most": round(max(references), 1),
        },
        "subjects": {name: _subject(turns, name) for name in turns[0].cpu_ms},
    }


def _subject(turns: Sequence[Turn], name: str) -> dict[str, Any]:
    cpu = [turn.cpu_ms[name] for turn in turns]
    beyond = [turn.cpu_ms[name] - turn.preparation_ms for turn in turns]
    return {
        "cpu_ms": round(statistics.median(cpu), 2),
        "cpu_ms_least": round(min(cpu), 2),
        "cpu_ms_most": round(max(cpu), 2),
        "of_naive": round(statistics.median(turn.cpu_ms[name] / turn.cpu_ms[NAIVE] for turn in turns), 2),
        # The naive gateway has no template, so this is not its figure.
        "beyond_preparation_ms": None if name == NAIVE else round(statistics.median(beyond), 2),
        "references": round(statistics.median(turn.cpu_ms[name] / turn.references_ms[name] for turn in turns), 3),
    }


def _turn(children: Mapping[str, Child], probe: Child, index: int) -> Turn:
    """A slice of each, beginning with another one each time."""
    file = body(1, PROMPT)
    names = list(children)
    first = index % len(names)
    cpu, references = {}, {}
    before = reference_ms()
    for name in names[first:] + names[:first]:
        cpu[name] = (run(children[name], _SLICE, file).cpu_us or 0.0) / 1000
        after = reference_ms()
        references[name] = (before + after) / 2
        before = after
    _preparation(probe)
    run(probe, _SLICE, file)
    return Turn(cpu, references, _preparation(probe)["cpu_ms"])


def _probe(triton: SyntheticTriton) -> Child:
    """A gateway with a clock in it, whose own cost does not count."""
    port = free_port()
    file = settings_file(Subject("gateway", "tokens", transports()[0]), triton, port, label="preparation")
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.harness.preparation_probe", file]
    child = Child("preparation", command, port, cwd=ROOT)
    child.wait_http("/health/ready")
    return child


def _preparation(probe: Child) -> dict[str, float]:
    found: dict[str, float] = json.loads(call(probe, "GET", "/preparation"))
    return found


def _ready(subject: Subject, triton: SyntheticTriton) -> tuple[float, int]:
    """Seconds from the start of the process until it is ready, and its resident bytes then."""
    begun = time.perf_counter()
    with launch(subject, triton, free_port(), label="ready") as child:
        child.wait_http("/health/ready")
        return time.perf_counter() - begun, child.resident_bytes()
