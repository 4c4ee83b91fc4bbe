"""The fault matrix: each fault, at each moment of an answer, before one Triton and before two, by both transports.

Run: ``make faults`` (some 25 minutes, of which ten are those of a saturated engine at the end). The exit status is 1
when that one was taken for anything but well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import platform
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.doubles.paced.server import PacedServer
from tests.faults.proxy import Proxy
from tests.faults.saturation import saturate
from tests.faults.stack import Outcome, Stack, ask, stack

FAULTS = ("killed", "cut", "swallowed", "silent", "slow", "corrupt")
MOMENTS = ("before the request", "before the first token", "in the middle", "at the end")
_STREAMS = 16
_TOKENS = 60
_LASTS_S = 5.0  # a fault that does not end by itself is healed then
_HUNG_S = 40.0


@dataclass
class Cell:
    """What became of the streams of one run.

    Attributes:
        whole: had all their tokens.
        broken: had some, and an error event.
        failed: had none, and an error.
        wrong: had a token that is wrong, lost or doubled.
        hung: did not end.
        back_s: seconds from the healing to the next whole answer of the endpoint that had the fault.
    """

    whole: int
    broken: int
    failed: int
    wrong: int
    hung: int
    back_s: float

    @staticmethod
    def of(outcomes: Sequence[Outcome], back_s: float) -> Cell:
        """Count outcomes."""
        ended = [outcome for outcome in outcomes if outcome.ended]
        return Cell(
            whole=sum(outcome.whole for outcome in ended),
            broken=sum(not outcome.whole and outcome.first is not None for outcome in ended),
            failed=sum(not outcome.whole and outcome.first is None for outcome in ended),
            wrong=sum(outcome.wrong or (outcome.whole and len(outcome.text) != _TOKENS) for outcome in outcomes),
            hung=len(outcomes) - len(ended),
            back_s=back_s,
        )


class Faulty:
    """The Triton that gets a fault, with the proxy before it."""

    def __init__(self, triton: PacedServer, proxy: Proxy) -> None:
        self.triton, self._proxy = triton, proxy

    async def begin(self, fault: str) -> None:
        """Begin a fault."""
        if fault == "killed":
            await asyncio.to_thread(self.triton.kill)
        elif fault == "cut":
            self._proxy.cut()
        elif fault == "swallowed":
            self._proxy.swallow()
        else:
            await asyncio.to_thread(self.triton.set, fault)  # type: ignore[arg-type] # FAULTS has the others' names

    async def heal(self, fault: str) -> None:
        """End it."""
        if fault == "killed":
            await asyncio.to_thread(self.triton.start)
        elif fault in {"cut", "swallowed"}:
            self._proxy.heal()
        else:
            await asyncio.to_thread(self.triton.set, "well")


@contextlib.asynccontextmanager
async def _running(folder: Path, count: int, transport: str) -> AsyncIterator[tuple[Stack, Faulty]]:
    """Tritons, the first behind a proxy, and a gateway before them."""
    loop = asyncio.get_running_loop()
    proxies: list[Proxy] = []

    async with contextlib.AsyncExitStack() as held:

        def addresses(tritons: Sequence[PacedServer]) -> list[str]:
            made = held.enter_async_context(Proxy(tritons[0].port))  # in this loop: the gateway is started in a thread
            proxies.append(asyncio.run_coroutine_threadsafe(made, loop).result())
            return [proxies[0].address, *(each.url for each in tritons[1:])]

        triton = {"transport": transport, "stall_s": 2}
        paced = {"slots": 64, "token_s": 0.02, "prefill_s": 2.0}
        timeouts = {"first_token_s": 30, "between_tokens_s": 5}
        made = stack(folder, count, addresses=addresses, triton=triton, paced=paced, timeouts=timeouts)
        running = await asyncio.to_thread(made.__enter__)
        held.push_async_callback(asyncio.to_thread, made.__exit__, None, None, None)
        yield running, Faulty(running.tritons[0], proxies[0])


async def _reached(moment: str, running: Stack, outcomes: Sequence[Outcome]) -> None:
    """Wait until the streams are where the fault is to come."""
    if moment == "before the first token":
        await running.until(lambda: sum(len(each.told()["requests"]) for each in running.tritons) >= _STREAMS)
    elif moment != "before the request":
        most = 5 if moment == "in the middle" else _TOKENS - 4
        await running.until(lambda: all(len(outcome.text) >= most or outcome.ended for outcome in outcomes))


async def _cell(folder: Path, fault: str, moment: str, count: int, transport: str) -> Cell:
    async with _running(folder, count, transport) as (running, faulty), running.client() as client:
        outcomes = [Outcome() for _ in range(_STREAMS)]
        if moment == "before the request":
            await faulty.begin(fault)
        asked = [asyncio.ensure_future(ask(client, _TOKENS, outcome)) for outcome in outcomes]
        if moment != "before the request":
            await _reached(moment, running, outcomes)
            await faulty.begin(fault)
        await asyncio.wait(asked, timeout=_LASTS_S)
        await faulty.heal(fault)
        back_s = await _back(client, running, faulty.triton)
        await asyncio.wait(asked, timeout=_HUNG_S)
        for each in asked:
            each.cancel()
        return Cell.of(outcomes, back_s)


async def _back(client: httpx.AsyncClient, running: Stack, triton: PacedServer) -> float:
    """Ask until the endpoint has answered again; returns the seconds."""
    began = time.monotonic()
    before = len(triton.told()["requests"])
    while time.monotonic() - began < _HUNG_S:
        outcome = await ask(client, 1)
        if outcome.whole and len(triton.told()["requests"]) > before and (await running.states())[0] == "ready":
            break
        await asyncio.sleep(0.05)
    return time.monotonic() - began


def _table(cells: dict[tuple[str, str, int, str], Cell]) -> str:
    lines = [
        f"{_STREAMS} streams of {_TOKENS} tokens a run, `stall_s` 2, `between_tokens_s` 5, {_LASTS_S:g} s until the"
        f" fault is healed; {platform.system()}, CPython {platform.python_version()}, {time.strftime('%Y-%m-%d')}.",
        "Each field: whole / ended with an error event after tokens / failed without a token; then the seconds from",
        "the end of the fault to the next answer of that endpoint.",
        "",
        "| fault | moment | one Triton, h2 | one, grpcio | two Tritons, h2 | two, grpcio |",
        "|---|---|---|---|---|---|",
    ]
    for fault, moment in itertools.product(FAULTS, MOMENTS):
        fields = []
        for count, transport in itertools.product((1, 2), ("h2", "grpcio")):
            cell = cells[fault, moment, count, transport]
            fields.append(f"{cell.whole} / {cell.broken} / {cell.failed}, {cell.back_s:.1f} s")
        lines.append(f"| {fault} | {moment} | {' | '.join(fields)} |")
    wrong, hung = sum(cell.wrong for cell in cells.values()), sum(cell.hung for cell in cells.values())
    total = len(cells) * _STREAMS
    lost = sum(cell.failed for (_, _, count, _), cell in cells.items() if count == 2)
    lines += [
        "",
        f"Of {total} streams {wrong} had a wrong, lost or doubled token and {hung} did not end. Before two Tritons"
        f" {lost} failed without a token.",
    ]
    return "\n".join(lines)


async def _measure(jobs: int, tell: Callable[[str], object]) -> dict[tuple[str, str, int, str], Cell]:
    """Run all cells, so many at a time: most of a run is waiting."""
    room = asyncio.Semaphore(jobs)
    keys = list(itertools.product(FAULTS, MOMENTS, (1, 2), ("h2", "grpcio")))

    async def one(key: tuple[str, str, int, str]) -> Cell:
        async with room:
            with tempfile.TemporaryDirectory() as folder:
                cell = await _cell(Path(folder), *key)
        tell(f"{', '.join(map(str, key))}: {cell}\n")
        return cell

    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))


def main() -> None:
    """Run the matrix, and tell or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--only", default="", help="a fault, to try it")
    parser.add_argument("--saturated-s", type=float, default=600, help="seconds of a saturated engine; 0: none")
    given = parser.parse_args()
    if given.only:
        for moment in MOMENTS:
            with tempfile.TemporaryDirectory() as folder:
                sys.stdout.write(f"{moment}: {asyncio.run(_cell(Path(folder), given.only, moment, 2, 'h2'))}\n")
        return
    table = _table(asyncio.run(_measure(given.jobs, sys.stderr.write)))
    sys.stdout.write(f"{table}\n")
    if given.saturated_s:
        outcomes, said = saturate(given.saturated_s)
        words = f"A saturated engine, {given.saturated_s:g} s: requests {dict(outcomes)}, health {dict(said)}."
        sys.stdout.write(f"\n{words}\n")
        sys.exit(set(said) != {"well"})


if __name__ == "__main__":
    main()
