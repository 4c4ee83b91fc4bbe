"""Plans a fleet: the fewest Tritons within the targets, their gateways, and the first exhausted resource."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from gateway.serving.fleet.addresses import MOST_ENDPOINTS
from gateway_ops.plan_fleet.curves import SizingError
from gateway_ops.plan_fleet.engine_costs import BenchResult, EngineCosts
from gateway_ops.plan_fleet.gateway_costs import GatewayCosts, GatewayNeed, Traffic, fewest_workers, gateway_need
from gateway_ops.plan_fleet.loads import LoadRequest, RandomLoad, RecordedLoad
from gateway_ops.plan_fleet.simulation import EngineCell, LatencySample, simulate

_FEWEST: Final = 3000  # measured requests: the slowest percent are thirty of them
_LIFETIMES: Final = 6.0  # of a request, that those which count arrive in: the engines fill, empty and fill
_FILLING: Final = 2.0  # of a request, before those which count
_MOST: Final = 90_000  # requests of a simulation, which take some seconds
_FEWEST_GATEWAYS: Final = 2  # one may leave or be lost


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of a fleet.

    Attributes:
        first_s: seconds to the first token that 95 of 100 requests do not exceed.
        between_s: seconds from token to token that the means of 95 of 100 answers do not exceed; None for any.
        most_loaded: part of what an engine can do, with its batch full, that the load may take.
        spare: Tritons of each cell beyond the need: as many may be lost or restarted.
        gateway_busy: largest busy share of a gateway's worker.
        workers: workers of a gateway.
    """

    first_s: float = 2.0
    between_s: float | None = None
    most_loaded: float = 0.85
    spare: int = 1
    gateway_busy: float = 0.6
    workers: int = 8

    def __post_init__(self) -> None:
        if not 0 <= self.spare < MOST_ENDPOINTS:
            raise SizingError(
                f"spare Tritons must be 0 to {MOST_ENDPOINTS - 1}: a model has {MOST_ENDPOINTS} endpoints"
            )


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that a growing load exhausts.

    Attributes:
        name: its name.
        used: use by the load.
        limit: its limit.
        factor: factor by which the load may grow until the resource is exhausted.
    """

    name: str
    used: float
    limit: float
    factor: float

    @staticmethod
    def in_proportion(name: str, used: float, limit: float) -> Resource:
        """Make a resource whose use is proportional to the load."""
        return Resource(name, used, limit, limit / used if used else math.inf)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The plan of a fleet.

    Attributes:
        rate: requests a second.
        tritons: needed Tritons.
        spare: spare Tritons.
        cells: parts with Tritons and gateways of their own, which a model's bound of endpoints makes necessary.
        gateways: processes with workers, all cells together.
        workers: workers of each gateway.
        need: needs for gateways.
        seen: latencies in one cell without its spare Tritons.
        in_flight: simultaneous requests of the whole fleet.
        triton_cores: busy cores of each Triton beside its engine.
        resources: resources, the first to be exhausted first.
    """

    rate: float
    tritons: int
    spare: int
    cells: int
    gateways: int
    workers: int
    need: GatewayNeed
    seen: LatencySample
    in_flight: float
    triton_cores: float
    resources: tuple[Resource, ...]

    def as_json(self) -> dict[str, Any]:
        """Write the plan as a JSON object; times in milliseconds as of ``gateway bench``."""
        seen = self.seen
        return {
            "requests_per_s": self.rate,
            "tritons": {"needed": self.tritons, "spare": self.spare, "cells": self.cells},
            "gateways": {"processes": self.gateways, "workers": self.workers, **asdict(self.need)},
            "in_flight": round(self.in_flight, 2),
            "queue_ms": seen.waited.as_json(),
            "time_to_first_token_ms": seen.first.as_json(),
            "between_tokens_ms": seen.between.as_json(),
            "end_to_end_ms": seen.whole.as_json(),
            "engine": {
                "busy": round(seen.busy, 4),
                "busy_with_prompts": round(seen.prompts, 4),
                "slots_in_use": round(seen.occupied, 2),
                "known_prefixes": round(seen.known / max(1, seen.whole.count), 4),
                "triton_cores": round(self.triton_cores, 3),
            },
            "exhausted": [
                {"name": each.name, **{key: round(value, 3) for key, value in asdict(each).items() if key != "name"}}
                for each in self.resources
            ],
        }


@dataclass(frozen=True, slots=True)
class FleetModel:
    """The costs of a fleet and its sharing of a load, for any size.

    Attributes:
        engine: the speed of a Triton.
        gateway: the cost of the gateway.
        targets: to keep.
        policy: the choice of a Triton for a request.
        known_prefixes: beginnings of prompts that a Triton's cache holds.
    """

    engine: EngineCosts
    gateway: GatewayCosts
    targets: Targets
    policy: str = "least_in_flight"
    known_prefixes: int = 0

    def plan(self, load: RandomLoad | RecordedLoad) -> FleetPlan:
        """Find the fewest Tritons that meet the targets, and the gateways for them.

        Raises:
            SizingError: no number of Tritons meets the targets.
        """
        self._check(load)
        fits: dict[int, LatencySample | None] = {}

        def seen_with(tritons: int) -> LatencySample | None:
            if tritons not in fits:
                seen = self._play(load, tritons)
                fits[tritons] = seen if self._kept(load, tritons, seen) else None
            return fits[tritons]

        low = max(1, math.floor(load.rate * self._work(load)))  # with one fewer the queue grows for ever
        high = low
        while seen_with(high) is None:
            low, high = high + 1, max(high + 1, math.ceil(high * 1.3))
            if high > 1000 * max(1.0, load.rate):
                raise SizingError("no number of Tritons meets the targets under this load")
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if seen_with(middle) is not None else (middle + 1, high)
        seen = seen_with(high)
        assert seen is not None  # noqa: S101 - the loop ends on one that was kept
        return self._finish(load, high, seen)

    def _work(self, load: RandomLoad | RecordedLoad) -> float:
        """The least seconds of an engine for a request, whose prefix may be known."""
        known = load.mean_prompt * load.shared if isinstance(load, RandomLoad) and self.known_prefixes else 0.0
        if isinstance(load, RecordedLoad) and self.known_prefixes:
            known = sum(each.shared for each in load.recorded) / len(load.recorded)
        return self.engine.work(load.mean_prompt - known, load.mean_answer)

    def _check(self, load: RandomLoad | RecordedLoad) -> None:
        """Reject targets that even an idle engine misses."""
        alone = simulate(EngineCell(self.engine, 1), _isolated(load), skip=0, count=200)
        if _late(alone.first.percentile(95), self.targets.first_s):
            raise SizingError(
                "no number of Tritons meets the target: on an idle Triton the first token takes "
                f"{alone.first.percentile(95):.3f} s for 5 of 100 prompts. Raise --ttft, or use a faster engine."
            )
        if self.targets.between_s is not None and _late(alone.between.percentile(95), self.targets.between_s):
            raise SizingError(
                "no number of Tritons meets the target: on an idle Triton a token takes "
                f"{(alone.between.percentile(95) or 0) * 1000:.1f} ms. Raise --between, or use a faster engine."
            )

    def _play(self, load: RandomLoad | RecordedLoad, tritons: int) -> LatencySample:
        """Play a cell of a fleet with so many Tritons, or a part of one where its requests are too many to play."""
        most = max(1, int(_MOST / (_LIFETIMES + _FILLING) / self.engine.slots))  # smaller parts have longer waits
        engines = min(math.ceil(tritons / self._cells(tritons)), most)
        part = load.part(tritons / engines)
        lifetime = self.engine.prefill(part.mean_prompt) + part.mean_answer * self.engine.steps[-1]
        count = max(_FEWEST, math.ceil(part.rate * lifetime * _LIFETIMES))
        skip = max(count // 2, math.ceil(part.rate * lifetime * _FILLING))
        cell = EngineCell(self.engine, engines, self.policy, self.known_prefixes)
        return simulate(cell, part.requests(), skip=skip, count=count)

    def _cells(self, tritons: int) -> int:
        """The number of cells of a fleet: a gateway has a limit of endpoints per model, which counts spare ones."""
        return math.ceil(tritons / (MOST_ENDPOINTS - self.targets.spare))

    def _loaded(self, load: RandomLoad | RecordedLoad, tritons: int, seen: LatencySample) -> float:
        """The part of capacity of the engines that the load takes."""
        return seen.prompts + load.rate / tritons * (load.mean_answer - 1) * self.engine.token_share_s

    def _kept(self, load: RandomLoad | RecordedLoad, tritons: int, seen: LatencySample) -> bool:
        return self._in_time(seen) and self._loaded(load, tritons, seen) <= self.targets.most_loaded

    def _in_time(self, seen: LatencySample) -> bool:
        targets = self.targets
        late = _late(seen.first.percentile(95), targets.first_s)
        return not late and not (
            targets.between_s is not None and _late(seen.between.percentile(95), targets.between_s)
        )

    def _finish(self, load: RandomLoad | RecordedLoad, tritons: int, seen: LatencySample) -> FleetPlan:
        cells = self._cells(tritons)
        tritons = math.ceil(tritons / cells) * cells
        in_flight = load.rate * seen.whole.mean
        traffic = Traffic(load.rate, load.mean_prompt, load.mean_answer, in_flight)
        fewest = fewest_workers(self.gateway, traffic, self.targets.gateway_busy)
        gateways = cells * max(_FEWEST_GATEWAYS, math.ceil(fewest / cells / self.targets.workers))
        workers = math.ceil(fewest / gateways)
        need = gateway_need(self.gateway, traffic, gateways * workers)
        triton_cores = load.rate * load.mean_answer * self.gateway.triton_token_s / tritons
        engines = Resource.in_proportion(
            "capacity of the engines", self._loaded(load, tritons, seen) * tritons, tritons
        )
        resources = (
            engines,
            self._target(load, tritons, seen, engines.factor),
            Resource.in_proportion("cores of the gateways' workers", need.cores, need.workers),
            Resource.in_proportion("concurrent responses per worker", need.streams, self.gateway.most_streams),
            Resource.in_proportion("endpoints per model", tritons / cells + self.targets.spare, MOST_ENDPOINTS),
        )
        return FleetPlan(
            rate=load.rate,
            tritons=tritons,
            spare=self.targets.spare * cells,
            cells=cells,
            gateways=gateways,
            workers=workers,
            need=need,
            seen=seen,
            in_flight=in_flight,
            triton_cores=triton_cores,
            resources=tuple(sorted(resources, key=lambda each: each.factor)),
        )

    def _target(self, load: RandomLoad | RecordedLoad, tritons: int, seen: LatencySample, most: float) -> Resource:
        """Find the factor by which the load may grow before tokens are late, within 0.05, by bisection."""
        low, high = 1.0, max(1.05, most)
        while high - low > 0.05:
            middle = (low + high) / 2
            in_time = self._in_time(self._play(load.part(1 / middle), tritons))
            low, high = (middle, high) if in_time else (low, middle)
        used = seen.first.percentile(95) or 0.0
        return Resource("time to tokens (the targets)", used, self.targets.first_s, low)


def compare(engine: EngineCosts, result: BenchResult, seed: int = 0) -> float:
    """Simulate the load of a result of ``gateway bench``; returns simulated over measured tokens per second."""
    streams = max(1, round(result.streams))
    lengths = LoadRequest(0.0, round(result.prompt), max(2, round(result.answer)))
    count = max(200, 20 * streams)
    seen = simulate(
        EngineCell(engine, 1, seed=seed), iter(lambda: lengths, None), skip=4 * streams, count=count, streams=streams
    )
    return streams / seen.whole.mean * lengths.answer / result.tokens_s


def _isolated(load: RandomLoad | RecordedLoad) -> Iterator[LoadRequest]:
    """The requests of a load, none of which meets another."""
    for number, each in enumerate(load.requests()):
        yield LoadRequest(number * 1e6, each.prompt, each.answer)


def _late(seen: float | None, target: float) -> bool:
    return seen is not None and seen > target
