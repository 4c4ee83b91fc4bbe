"""Loads of a fleet: requests with times and lengths, random or from a trace."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gateway_ops.bench.plan import Lengths
from gateway_ops.plan_fleet.curves import SizingError

ARRIVALS: Final = ("poisson", "even", "bursts")


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One request.

    Attributes:
        at: time of arrival in seconds.
        prompt: tokens of its prompt.
        answer: tokens of its answer, at least 1.
        prefix: name of the beginning that its prompt shares with others, if any.
        shared: tokens of that beginning.
    """

    at: float
    prompt: int
    answer: int
    prefix: str | None = None
    shared: int = 0


@dataclass(frozen=True, slots=True)
class RandomLoad:
    """A random load, equal for equal seeds.

    Attributes:
        rate: requests a second, on the average.
        prompt: tokens of a prompt.
        answer: tokens of an answer.
        arrivals: ``poisson`` (at random), ``even``, or ``bursts`` of several requests together at random times.
        burst: requests of a burst.
        shared: share of a prompt that others begin with, too, 0 to 1.
        prefixes: number of such beginnings, equally frequent.
        seed: seed of lengths, arrivals and beginnings.
    """

    rate: float
    prompt: Lengths
    answer: Lengths
    arrivals: str = "poisson"
    burst: int = 10
    shared: float = 0.0
    prefixes: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf:
            raise SizingError("the rate must be above 0")
        if self.arrivals not in ARRIVALS:
            raise SizingError(f"{self.arrivals!r} is not a kind of arrivals: {', '.join(ARRIVALS)}")
        if not 0 <= self.shared <= 1:
            raise SizingError("the shared part of prompts must be between 0 and 1")

    @property
    def mean_prompt(self) -> float:
        """Mean tokens of a prompt."""
        return (self.prompt.least + self.prompt.most) / 2

    @property
    def mean_answer(self) -> float:
        """Mean tokens of an answer."""
        return (self.answer.least + self.answer.most) / 2

    def part(self, parts: float) -> RandomLoad:
        """One of several equal parts of the load; a number below one multiplies it."""
        return replace(self, rate=self.rate / parts)

    def requests(self) -> Iterator[LoadRequest]:
        """Yield endless requests, by rising time."""
        source = random.Random(self.seed)  # noqa: S311 - lengths and arrivals
        for at in self._times(random.Random(self.seed + 1)):  # noqa: S311
            prompt = self.prompt.draw(source)
            prefix = str(source.randrange(self.prefixes)) if self.shared else None
            yield LoadRequest(at, prompt, self.answer.draw(source), prefix, round(prompt * self.shared))

    def _times(self, source: random.Random) -> Iterator[float]:
        together = self.burst if self.arrivals == "bursts" else 1
        now = 0.0
        while True:
            now += together / self.rate if self.arrivals == "even" else source.expovariate(self.rate / together)
            yield from itertools.repeat(now, together)


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """Recorded requests, played again and again.

    Attributes:
        recorded: requests by rising time from 0, at least two.
        length: seconds from one beginning to the next.
        seed: seed for the choice of requests in a part.
        parts: number of parts of the load, of which this is one.
    """

    recorded: tuple[LoadRequest, ...]
    length: float
    seed: int = 0
    parts: float = 1.0

    @property
    def rate(self) -> float:
        """Mean requests per second."""
        return len(self.recorded) / self.length / self.parts

    @property
    def mean_prompt(self) -> float:
        """Mean tokens of a prompt."""
        return sum(each.prompt for each in self.recorded) / len(self.recorded)

    @property
    def mean_answer(self) -> float:
        """Mean tokens of an answer."""
        return sum(each.answer for each in self.recorded) / len(self.recorded)

    def part(self, parts: float) -> RecordedLoad:
        """One of several parts of the load, with random requests; a number below one plays it faster."""
        return self.faster(1 / parts) if parts < 1 else replace(self, parts=self.parts * parts)

    def faster(self, factor: float) -> RecordedLoad:
        """Copy the load, a number of times as fast."""
        played = tuple(replace(each, at=each.at / factor) for each in self.recorded)
        return replace(self, recorded=played, length=self.length / factor)

    def requests(self) -> Iterator[LoadRequest]:
        """Yield endless requests, by rising time."""
        source = random.Random(self.seed)  # noqa: S311 - which requests are taken
        for turn in itertools.count():
            for each in self.recorded:
                if self.parts == 1 or source.random() * self.parts < 1:
                    yield replace(each, at=each.at + turn * self.length)


def read_trace(path: Path, seed: int = 0, model: str | None = None) -> RecordedLoad:
    """Read requests from lines of JSON: a trace, or the gateway's own log.

    A line of a trace has ``at`` (seconds), ``prompt_tokens``, ``completion_tokens``, and may have ``prefix`` (a name)
    with ``shared_tokens``. Of a log the lines with generated tokens are taken; their times are of whole seconds, over
    which the requests of a second are spread.

    Args:
        path: path of the file.
        seed: seed of times within a second, and for the choice of requests in a part.
        model: the model of a log's requests; None where there is only one.

    Raises:
        SizingError: the file cannot be read, a line of it is neither, the log is of several models and none is named,
            or there are fewer than two requests.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SizingError(f"{path} cannot be read: {error}") from None
    source = random.Random(seed)  # noqa: S311 - places within a second
    read = [each for number, line in enumerate(lines, 1) if (each := _read_line(path, number, line, source))]
    models = sorted({name for name, _ in read if name is not None})
    if model is None and len(models) > 1:
        raise SizingError(f"{path} has requests of several models: choose one with --model: {', '.join(models)}")
    found = [each for name, each in read if model is None or name in {None, model}]
    if len(found) < 2:
        raise SizingError(f"{path} has {len(found)} requests; a load needs at least two")
    found.sort(key=lambda each: each.at)
    begin, span = found[0].at, found[-1].at - found[0].at
    if span <= 0:
        raise SizingError(f"{path}: all requests arrive at the same time; a load needs different arrival times")
    length = span * len(found) / (len(found) - 1)  # the mean interval follows the last request, too
    return RecordedLoad(tuple(replace(each, at=each.at - begin) for each in found), length, seed)


def _read_line(path: Path, number: int, line: str, source: random.Random) -> tuple[str | None, LoadRequest] | None:
    """The model, where the line names one, and the request; None where it has none."""
    if not line.strip():
        return None
    where = f"{path}, line {number}"
    try:
        values = json.loads(line)
    except ValueError:
        raise SizingError(f"{where} is not JSON") from None
    if not isinstance(values, dict):
        raise SizingError(f"{where} is not an object")
    if "logger" in values:
        return _logged(where, values, source)
    prefix = values.get("prefix")
    at, shared = _number(where, values, "at"), _number(where, values, "shared_tokens", 0 if prefix is None else None)
    prompt = int(_number(where, values, "prompt_tokens"))
    answer = max(1, int(_number(where, values, "completion_tokens")))
    return None, LoadRequest(at, prompt, answer, None if prefix is None else str(prefix), min(int(shared), prompt))


def _logged(where: str, values: dict[str, Any], source: random.Random) -> tuple[str | None, LoadRequest] | None:
    if values["logger"] != "gateway.access" or not values.get("completion_tokens"):
        return None
    try:
        ended = dt.datetime.fromisoformat(str(values["time"])[:19]).replace(tzinfo=dt.timezone.utc)
    except (KeyError, ValueError):
        raise SizingError(f"{where} has no time") from None
    at = ended.timestamp() + source.random() - _number(where, values, "duration_s")
    prompt, answer = _number(where, values, "prompt_tokens"), _number(where, values, "completion_tokens")
    return values.get("model"), LoadRequest(at, int(prompt), max(1, int(answer)))


def _number(where: str, values: dict[str, Any], name: str, default: float | None = None) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise SizingError(f"{where}: {name} must be a number, 0 or more")
    return float(value)
