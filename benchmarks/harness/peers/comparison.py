"""This gateway, the naive one and every other that can be had here, in the relay's loads and with long prompts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from benchmarks.harness.load import Load, Result, run
from benchmarks.harness.processes import BenchmarkError, SyntheticTriton
from benchmarks.harness.relay import LOADS, WARM_UP, Tell, summary
from benchmarks.harness.subjects import Subject, body, start, transports, write_repository

from . import dynamo, litellm, long_prompts, smg, triton_front_end
from .first_event import begins_early
from .peer import Peer

_OTHERS: dict[str, Callable[[Tell], AbstractContextManager[Peer]]] = {
    "Dynamo": dynamo.served,
    "SMG": smg.served,
    "Triton's front end": triton_front_end.served,
    "LiteLLM": litellm.served,
}
_SLOWER = 5  # times fewer tokens in each answer of a slow one
_GRPC = "Triton's gRPC (`ModelStreamInfer`), from the synthetic Triton"
_NAIVE_WITHOUT = "check keys, count usage, show metrics, log, use a template, say `length`"


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Interleaved runs; what cannot be had here is left out by name, with the reason.

    Raises:
        BenchmarkError: this gateway or the naive one did not start.
    """
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        peers = [stack.enter_context(peer) for peer in _own(triton)]
        for name, served in _OTHERS.items():
            found = _entered(stack, served(tell))
            if isinstance(found, Peer):
                peers.append(found)
            else:
                left_out[name] = found
                tell(f"left out, {name}: {found}")
        for peer in peers:
            peer.pace(0)
            run(peer.child, WARM_UP, body(WARM_UP.tokens))
        early = [peer.name for peer in peers if begins_early(peer)]
        loads = {load.name: _interleaved(peers, load, rounds, tell) for load in LOADS}
        prompts = long_prompts.measure(peers, rounds, tell)
    return {
        "rounds": rounds,
        "peers": {peer.name: _about(peer) for peer in peers},
        "left_out": left_out,
        "early": early,
        "loads": loads,
        "ratios": {peer.name: each for peer in peers if peer.name in _OTHERS and (each := ratios(loads, peer.name))},
        "long_prompts": prompts,
    }


def _about(peer: Peer) -> dict[str, str]:
    return {"release": peer.release, "upstream": peer.upstream, "without": peer.without}


def _entered(stack: ExitStack, peer: AbstractContextManager[Peer]) -> Peer | str:
    """A gateway that serves, else why it does not."""
    try:
        return stack.enter_context(peer)
    except BenchmarkError as error:
        return str(error)


def _own(triton: SyntheticTriton) -> Iterator[AbstractContextManager[Peer]]:
    """The naive gateway and this one, by dialect and transport, and with a worker for each core."""
    default, known = transports()
    subjects = [Subject("naive", "tokens"), Subject("naive", "text")]
    subjects += [Subject("gateway", dialect, transport) for dialect in ("tokens", "text") for transport in known]
    for subject in subjects:
        yield _started(subject, triton, subject.name, _NAIVE_WITHOUT if subject.kind == "naive" else "")
    cores = len(os.sched_getaffinity(0))
    ours = Subject("gateway", "tokens", default)
    yield _started(ours, triton, f"{ours.name}, {cores} workers", "", label="workers", workers=cores)


@contextlib.contextmanager
def _started(subject: Subject, triton: SyntheticTriton, name: str, without: str, **server: Any) -> Iterator[Peer]:
    with start(subject, triton, **server) as child:
        yield Peer(name, "", child, triton.pace, _GRPC, without)


def _interleaved(peers: Sequence[Peer], load: Load, rounds: int, tell: Tell) -> dict[str, Any]:
    """Medians by name; the reason in place of them where a run failed."""
    runs: dict[str, list[Result]] = {}
    failed: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for peer in peers:
            if peer.name in failed:
                continue
            result = _loaded(peer, load)
            if isinstance(result, Result):
                runs.setdefault(peer.name, []).append(result)
            else:
                failed[peer.name] = result
        tell(f"run {number} of {rounds}, {load.name}")
    rows: dict[str, Any] = {}
    for peer in peers:
        if peer.name in failed:
            rows[peer.name] = {"failed": failed[peer.name]}
        else:
            rows[peer.name] = summary(runs[peer.name]) | ({"tokens": load.tokens // _SLOWER} if peer.slow else {})
    return rows


def _loaded(peer: Peer, load: Load) -> Result | str:
    """One run, else why there is none."""
    own = dataclasses.replace(load, tokens=load.tokens // _SLOWER) if peer.slow else load
    peer.pace(load.delay_us)
    try:
        return run(peer.child, own, body(own.tokens))
    except BenchmarkError as error:
        return str(error).splitlines()[0]


def ratios(loads: dict[str, Any], name: str) -> dict[str, float]:
    """CPU per token of this gateway, tokens dialect and default transport, as a part of another's, by load.

    A load where either failed, or the other's answers were shorter, has none.
    """
    ours = Subject("gateway", "tokens", transports()[0]).name
    return {
        load: round(rows[ours]["cpu_us"] / rows[name]["cpu_us"], 3)
        for load, rows in loads.items()
        if "cpu_us" in rows[ours] and "cpu_us" in rows[name] and "tokens" not in rows[name]
    }
