"""One run of a load generator against a process, and its figures."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Protocol

from .processes import BUILT, BenchmarkError
from .subjects import KEY

_TIMEOUT_S = 180
_REPEATS = 2
_BEFORE_REPEAT_S = 5.0


@dataclass(frozen=True)
class Load:
    """The size of a load.

    Attributes:
        name: in tables.
        streams: at the same time.
        delay_us: between a stream's tokens; 0 as fast as they are taken.
        tokens: tokens of each answer.
        rounds: answers of each stream, one after the other.
        stagger_us: between the starts of the streams.
        events: least events of each answer; None: one for each token.
        path: that is asked.
        key: that the requests have.
    """

    name: str
    streams: int
    delay_us: int
    tokens: int
    rounds: int = 1
    stagger_us: int = 0
    events: int | None = None
    path: str = "/v1/chat/completions"
    key: str = KEY


@dataclass(frozen=True)
class Result:
    """The result of one run; times in microseconds, None where nothing was stamped or no process was watched.

    Attributes:
        cpu_us: CPU of the process for each relayed token.
        tokens_s: relayed tokens each second.
        first_p50: to the first event, median.
        first_p99: its 99th percentile.
        delay_p50: of a token from its stamp to the client, median.
        delay_p90: its 90th percentile.
        delay_p99: its 99th percentile.
        seconds: wall time of the run.
    """

    cpu_us: float | None
    tokens_s: float
    first_p50: float
    first_p99: float
    delay_p50: float | None
    delay_p90: float | None
    delay_p99: float | None
    seconds: float

    @staticmethod
    def median(results: Sequence[Result]) -> Result:
        """The median of each figure."""
        middle = {}
        for field in fields(Result):
            values = [value for result in results if (value := getattr(result, field.name)) is not None]
            middle[field.name] = statistics.median(values) if values else None
        return Result(**middle)  # type: ignore[arg-type]

    def as_json(self) -> dict[str, float | None]:
        """Its figures, rounded."""
        return {name: None if value is None else round(value, 2) for name, value in asdict(self).items()}


class Watched(Protocol):
    """What a load is run against.

    Attributes:
        port: its port.
    """

    port: int

    def cpu_s(self) -> float:
        """CPU seconds that it has spent."""
        ...


def run(
    child: Watched,
    load: Load,
    body: Path,
    *,
    during: Callable[[], None] | None = None,
    ports: str = "",
    plain: bool = False,
) -> Result:
    """Load a gateway; every answer must be whole.

    A run that fails is repeated, twice at most, with a word about it: on a machine that others keep busy a health check
    may come too late.

    Args:
        child: the gateway.
        load: how.
        body: the body of each request.
        during: called once when the generator runs.
        ports: with commas, in place of the gateway's: each connection goes to one of them by chance.
        plain: whether answers are no streams; a whole one counts as an event.

    Raises:
        BenchmarkError: an answer was refused or cut off, or there were fewer events than expected.
    """
    env = {**({"PORTS": ports} if ports else {}), **({"PLAIN": "1"} if plain else {})}
    for _ in range(_REPEATS):
        try:
            return _run(child, load, body, during, env)
        except BenchmarkError as error:  # noqa: PERF203 - twice
            print(f"repeated: {str(error).splitlines()[-1][:200]}", file=sys.stderr, flush=True)
            time.sleep(_BEFORE_REPEAT_S)
    return _run(child, load, body, during, env)


def _run(child: Watched, load: Load, body: Path, during: Callable[[], None] | None, more: Mapping[str, str]) -> Result:
    command: list[str | Path] = [
        BUILT / "ssecli", str(child.port), str(load.streams), str(load.rounds), load.path, body,
    ]  # fmt: skip
    cpu = child.cpu_s()
    env = {"KEY": load.key, "STAGGER_US": str(load.stagger_us), **more}
    said = generate(command, env, during)
    spent = child.cpu_s() - cpu
    answers = load.streams * load.rounds
    figures = parse(said)
    if figures["done"] != answers or figures["bad"] or figures["events"] < answers * (load.events or load.tokens):
        raise BenchmarkError(f"{load.name}: not every answer was whole: {said.strip()}")
    return _result(figures, answers * load.tokens, spent)


def run_direct(port: int, load: Load) -> Result:
    """The same load on Triton itself, by a C++ client.

    Raises:
        BenchmarkError: a request failed.
    """
    said = generate([BUILT / "direct", str(port), str(load.streams), str(load.rounds), str(load.tokens)], {})
    figures = parse(said)
    tokens = load.streams * load.rounds * load.tokens
    if figures["bad"] or figures["events"] != tokens:
        raise BenchmarkError(f"{load.name}, direct: {said.strip()}")
    return _result(figures, tokens, None)


def parse(line: str) -> dict[str, float]:
    """The figures of a generator's line: ``events=5 ... ttft_us p50=3 ... tok_us p50=4`` and so on."""
    figures: dict[str, float] = {}
    group = ""
    for word in line.split():
        name, equals, value = word.partition("=")
        if not equals:
            group = f"{name}_"
        elif re.fullmatch(r"-?[0-9.]+", value):
            figures[group + name] = float(value)
    return figures


def generate(command: Sequence[str | Path], env: Mapping[str, str], during: Callable[[], None] | None = None) -> str:
    """Run a load generator; returns all that it said.

    Raises:
        BenchmarkError: it failed.
    """
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            if during is not None:
                during()
            said, errors = process.communicate(timeout=_TIMEOUT_S)
        finally:
            process.kill()
    if process.returncode != 0 or not said:
        raise BenchmarkError(f"the load generator failed: {errors.strip()[-500:]}")
    return said + errors


def _result(figures: dict[str, float], tokens: int, spent: float | None) -> Result:
    return Result(
        cpu_us=None if spent is None else spent * 1e6 / tokens,
        tokens_s=tokens / figures["wall"],
        first_p50=figures["ttft_us_p50"],
        first_p99=figures["ttft_us_p99"],
        delay_p50=figures.get("tok_us_p50"),
        delay_p90=figures.get("tok_us_p90"),
        delay_p99=figures.get("tok_us_p99"),
        seconds=figures["wall"],
    )
