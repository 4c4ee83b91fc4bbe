"""The endurance run: random cancels, fuzzed requests, spoiled answers in a mixed load, with all of the front door on.

Run: ``make endurance``, or ``make endurance ARGS='--seconds 1800'`` for a mixed load of half an hour.
The exit status is 1 when something was wrong; what was is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness.collector import collecting
from tests.faults.endurance_client import Tally
from tests.faults.stack import Stack, stack
from tests.warm_gateways import WarmGateways

_KEY = "sk-endurance"
_SETTLED_S = 60.0
_LAPS = 4  # of the mixed load
_MOST_GROWTH = 1.15  # of the memory after the first half of the mixed load: most caches and pools are full by then
_MOST_MORE_FILES = 8  # a process: connections of probes and of the collector come and go


def _settings(collector: str, slots: int) -> dict[str, Any]:
    """Keys with names and limits, fair shares, and traces of one request in ten."""
    digest = hashlib.sha256(_KEY.encode()).hexdigest()
    limits = {"requests_per_minute": 10**8, "tokens_per_minute": 10**11, "in_flight": 10**6, "max_tokens": 512}
    return {
        "auth": {"keys": [{"name": "endurance", "hash": f"sha256:{digest}", "limits": limits}]},
        "telemetry": {"traces": True, "metrics": True, "endpoint": collector, "sample_ratio": 0.1},
        "model": {"admission": {"max_running": 2 * slots, "max_waiting": 5000}},
        "paced": {"slots": slots, "token_s": 0.004, "prefill_s": 0.01},
    }


def _ask(running: Stack, given: argparse.Namespace, counts: dict[str, int], seconds: float = 0, seed: int = 1) -> Tally:
    """Have so many asked by clients in processes of their own; what came of it all."""
    clients = []
    for number in range(given.clients):
        shares = {kind: math.ceil(count / given.clients) for kind, count in counts.items()}
        task = {
            "url": running.gateway.url, "key": _KEY, "seed": seed + number, "counts": shares, "seconds": seconds,
            "at_once": given.at_once, "rest_s": given.rest_s, "further": ["stream", "answer", "cancel", "fuzz"],
        }  # fmt: skip
        asked, said = (running.gateway.log.with_name(f"{name}-{number}") for name in ("asked", "said"))
        asked.write_text(json.dumps(task))
        said.write_bytes(b"")
        warm = WarmGateways.of_this_process("tests.faults.endurance_client")
        clients.append((warm.start([], os.environ, stdin=asked, stdout=said), said))
    whole = Tally()
    for client, said in clients:
        assert client.wait() == 0, said.read_text()
        told = json.loads(said.read_text())
        whole.asked += Counter(told["asked"])
        whole.statuses += Counter(told["statuses"])
        whole.wrong += told["wrong"]
    return whole


def _processes(running: Stack) -> list[int]:
    """The gateway's processes, without its helpers, which come and go."""
    process = running.gateway._process
    assert process is not None
    return [process.pid, *running.gateway.children()]


def _resident_mb(pids: Sequence[int]) -> float:
    """Their memory that no file backs."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
    return total / 1024


def _files(pids: Sequence[int]) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


async def _settle(running: Stack) -> str | None:
    """Wait until nothing runs any more, neither in the gateway nor in the Tritons; what still does, or None."""
    ends = time.monotonic() + _SETTLED_S
    async with httpx.AsyncClient(base_url=running.gateway.url) as client:
        while True:
            metrics = (await client.get("/metrics", headers={"authorization": f"Bearer {_KEY}"})).text
            left = [line for line in metrics.splitlines() if _runs(line)]
            left += [f"{each.url} runs {count}" for each in running.tritons if (count := each.told()["running"])]
            if not left:
                return None
            if time.monotonic() > ends:
                return f"still there after {_SETTLED_S:g} s: {left}"
            await asyncio.sleep(0.2)


def _runs(line: str) -> bool:
    """Whether a line of the metrics says that something is in flight."""
    names = ("gateway_requests_in_flight", "gateway_generations_running", "gateway_generations_waiting")
    return line.startswith(names) and float(line.rpartition(" ")[2]) != 0


def _tell(phase: str, tally: Tally, began: float) -> None:
    statuses = ", ".join(f"{name}: {count:,}" for name, count in sorted(tally.statuses.items()))
    sys.stdout.write(f"{phase}: {time.monotonic() - began:.0f} s; {statuses}\n")
    for wrong in tally.wrong[:10]:
        sys.stdout.write(f"WRONG {wrong}\n")
    sys.stdout.flush()


async def _endure(given: argparse.Namespace, running: Stack) -> bool:
    """The phases one after the other; whether all was well."""
    few = min(200 * given.clients, given.cancels)
    warm_up = _ask(running, given, dict.fromkeys(("stream", "answer", "cancel", "fuzz"), few))
    wrong = [*warm_up.wrong, *filter(None, [await _settle(running)])]
    pids = _processes(running)
    memory, files = [_resident_mb(pids)], _files(pids)
    for number in range(_LAPS):
        wrong += await _lap(given, running, number)
        memory.append(_resident_mb(pids))
    wrong += await _spoil(given, running)
    memory.append(_resident_mb(pids))

    if _processes(running) != pids:
        wrong.append(f"processes ended: {pids}, then {_processes(running)}")
    grown, more = memory[-1] / memory[_LAPS // 2], _files(pids) - files
    sys.stdout.write(f"memory, MB: {', '.join(f'{each:.0f}' for each in memory)}; {files} files, then {more:+d}\n")
    if grown > _MOST_GROWTH or more > _MOST_MORE_FILES * len(pids):
        wrong.append("memory or files are not back")
    traces = [line for line in running.gateway.log_lines() if '"exc_info"' in line or not line.startswith("{")]
    wrong += [f"in the log: {line[:2000]}" for line in traces[:3]]
    sys.stdout.write(f"{'not ' if wrong else ''}well\n")
    for each in wrong[:20]:
        sys.stdout.write(f"WRONG {each}\n")
    return not wrong


async def _lap(given: argparse.Namespace, running: Stack, number: int) -> list[str]:
    """A part of the mixed load; what was wrong."""
    began = time.monotonic()
    counts = {"stream": given.cancels // 4, "answer": given.cancels // 8, "cancel": given.cancels, "fuzz": given.fuzzed}
    counts = {kind: count // _LAPS for kind, count in counts.items()}
    mixed = _ask(running, given, counts, given.seconds / _LAPS, given.seed + 100 * number)
    _tell(f"mixed load {number + 1} of {_LAPS}", mixed, began)
    return [*mixed.wrong, *filter(None, [await _settle(running)])]


async def _spoil(given: argparse.Namespace, running: Stack) -> list[str]:
    """Ask engines that have gone mad, and then well ones again; what was wrong."""
    began = time.monotonic()
    for triton in running.tritons:
        triton.set("spoiled")
    spoiled = _ask(running, given, {"spoiled": given.spoiled})
    _tell("spoiled answers", spoiled, began)
    for triton in running.tritons:
        triton.set("well")
    await running.until(lambda: _ready(running), 60)
    began = time.monotonic()
    after = _ask(running, given, dict.fromkeys(("stream", "answer"), min(200, given.cancels)))
    _tell("after it", after, began)
    return [*spoiled.wrong, *after.wrong, *filter(None, [await _settle(running)])]


async def _ready(running: Stack) -> bool:
    """Whether each worker serves each endpoint; the share of requests that failed may still be told."""
    async with httpx.AsyncClient(base_url=running.gateway.url) as client:
        metrics = (await client.get("/metrics", headers={"authorization": f"Bearer {_KEY}"})).text
    told = [line for line in metrics.splitlines() if line.startswith("gateway_endpoint_ready{")]
    return bool(told) and all(line.endswith(" 1.0") for line in told)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cancels", type=int, default=20_000, help="streams that are left at random")
    parser.add_argument("--fuzzed", type=int, default=100_000, help="requests changed at random")
    parser.add_argument("--spoiled", type=int, default=10_000, help="answers of an engine that spoils every tenth")
    parser.add_argument("--seconds", type=float, default=0, help="of mixed load, where these do not take as long")
    parser.add_argument("--clients", type=int, default=4, help="processes that ask")
    parser.add_argument("--at-once", type=int, default=16, help="requests at a time, of each of them")
    parser.add_argument("--rest-s", type=float, default=0, help="seconds between its requests")
    parser.add_argument("--workers", type=int, default=2, help="of the gateway")
    parser.add_argument("--transport", default="auto", help="towards Triton")
    parser.add_argument("--seed", type=int, default=1, help="of the chances")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, collecting() as collector:
        settings = _settings(collector, slots=given.clients * given.at_once)
        triton = {"transport": given.transport}
        with stack(Path(folder), workers=given.workers, triton=triton, **settings) as running:
            return 0 if asyncio.run(_endure(given, running)) else 1


if __name__ == "__main__":
    sys.exit(main())
