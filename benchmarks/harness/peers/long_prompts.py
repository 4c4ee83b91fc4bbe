"""The cost of first and later turns of long conversations, for gateways that tokenize, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.relay import Tell
from benchmarks.harness.turns import LATER, SIZES, Size, conversations, cpu_ms, more

from .peer import Peer

_NAMES = ("gateway tokens h2", "gateway tokens grpcio", "Dynamo", "SMG")


def measure(peers: Sequence[Peer], rounds: int, tell: Tell) -> list[dict[str, Any]]:
    """CPU milliseconds of a request by size and name; None where a gateway refuses such prompts."""
    chosen = sorted((peer for peer in peers if peer.name in _NAMES), key=lambda peer: _NAMES.index(peer.name))
    for peer in chosen:
        peer.pace(0)
    rows = []
    for size in SIZES:
        found = [_round(chosen, size, number) for number in range(rounds + 1)][1:]  # the first one warms up
        row: dict[str, Any] = {"prompt": size.tokens, "peers": {}}
        for peer in chosen:
            each = [one[peer.name] for one in found]
            row["peers"][peer.name] = _medians([turns for turns in each if turns is not None])
        rows.append(row)
        tell(str(row))
    return rows


def _round(peers: Sequence[Peer], size: Size, number: int) -> dict[str, tuple[float, float] | None]:
    """First and later turns of the same conversations, one gateway after the other."""
    talks = list(conversations(size, f"peers {number}"))
    return {peer.name: _turns(peer, talks) for peer in peers}


def _turns(peer: Peer, talks: Sequence[list[dict[str, str]]]) -> tuple[float, float] | None:
    """Milliseconds of first and of later turns; None where it refuses one."""
    try:
        first = cpu_ms(peer.child, talks)
        later = cpu_ms(peer.child, [talk + more(turn) for turn in range(1, LATER + 1) for talk in talks])
    except BenchmarkError:
        return None
    return first, later


def _medians(rounds: Sequence[tuple[float, float]]) -> dict[str, float] | None:
    if not rounds:
        return None
    first, later = (round(statistics.median(values), 2) for values in zip(*rounds, strict=True))
    return {"first_ms": first, "later_ms": later}
