"""A continuous load: several load generators at once, which report figures while they run."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .load import Load, parse
from .processes import BUILT, BenchmarkError, Child
from .subjects import KEY

_BEGIN_S = 60.0
_ANSWER_S = 20.0
_SPREAD_US = 1_000_000  # over which the streams start
_END_S = 60.0
_NO_MORE = 1.02  # of what is offered: nothing is being caught up on
_SETTLE_S = 15


@dataclass(frozen=True)
class Carried:
    """The figures of the generators since their last report.

    Attributes:
        tokens: tokens that came.
        seconds: the time that it took.
        busiest: load of the busiest generator's core.
        cores: cores that all generators kept busy.
    """

    tokens: float
    seconds: float
    busiest: float
    cores: float


class SteadyLoad:
    """Load generators with a share of the streams each, whose answers are too long to end; a context manager.

    Requests begin and end outside of what is measured.
    """

    def __init__(self, gateway: Child, load: Load, body: Path, generators: int) -> None:
        """Start them.

        Args:
            gateway: the loaded gateway.
            load: the number of streams; pace and body are set elsewhere.
            body: the body of each request.
            generators: number of processes, a divisor of the number of streams.
        """
        self._gateway, self._body = gateway, body
        self._generators: list[subprocess.Popen[str]] = []
        self._streams: list[int] = []
        self._begun = 0  # of the generators
        for _ in range(generators):
            self.add(load.streams // generators)

    def add(self, streams: int, spread_us: int = _SPREAD_US) -> None:
        """Start one more generator."""
        command: list[str | Path] = [
            BUILT / "ssecli", str(self._gateway.port), str(streams), "1", "/v1/chat/completions", self._body,
        ]  # fmt: skip
        env = {**os.environ, "KEY": KEY, "HOLD": "1", "STAGGER_US": str(spread_us // streams)}
        self._generators.append(
            subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self._streams.append(streams)

    def __enter__(self) -> SteadyLoad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for generator in self._generators:
            generator.kill()
        for generator in self._generators:
            generator.communicate()

    def wait(self) -> None:
        """Until every stream has had its first event; the figures begin here.

        Raises:
            BenchmarkError: a minute was not enough, or a stream ended.
        """
        due = time.monotonic() + _BEGIN_S
        for generator in self._generators[self._begun :]:
            if (line := self._line(generator, due, f"not every stream began within {_BEGIN_S:.0f} s")) != "begun":
                raise _ended(line)
            self._begun += 1
        self.figures()

    def settle(self, offered_s: float, seconds: int = _SETTLE_S) -> None:
        """Wait until what queued up while the streams began has been carried: it comes in bursts, which cost less.

        Args:
            offered_s: tokens that the synthetic Triton makes each second.
            seconds: to wait at most.
        """
        for _ in range(seconds):
            time.sleep(1)
            carried = self.figures()
            if carried.tokens / carried.seconds < _NO_MORE * offered_s:
                return

    def figures(self) -> Carried:
        """The figures since the last call.

        Raises:
            BenchmarkError: a stream ended.
        """
        figures = self._ask("")
        busy = [each["gen_us/ev"] * each["ev/s"] / 1e6 for each in figures]
        return Carried(
            tokens=sum(each["events"] for each in figures),
            seconds=sum(each["wall"] for each in figures) / len(figures),
            busiest=max(busy),
            cores=sum(busy),
        )

    def end(self, end_streams: Callable[[], None]) -> None:
        """Let every answer end; each must be whole.

        Args:
            end_streams: has the synthetic Triton end them.

        Raises:
            BenchmarkError: an answer was cut off, or a minute was not enough.
        """
        self._ask("end")
        end_streams()
        due = time.monotonic() + _END_S
        for generator, streams in zip(self._generators, self._streams, strict=True):
            line = self._line(generator, due, f"not every stream ended within {_END_S:.0f} s")
            if parse(line)["done"] != streams:
                raise BenchmarkError(f"not every answer was whole: {line}")

    def _ask(self, command: str) -> list[dict[str, float]]:
        """The figures of each generator since the last command."""
        for generator in self._generators:
            if generator.stdin is None:
                raise BenchmarkError("a load generator without standard input")
            with contextlib.suppress(BrokenPipeError):  # it has ended, and its last line says why
                generator.stdin.write(f"{command}\n")
                generator.stdin.flush()
        due = time.monotonic() + _ANSWER_S
        lines = [self._line(generator, due, "a load generator says nothing") for generator in self._generators]
        figures = [parse(line) for line in lines]
        for line, each, streams in zip(lines, figures, self._streams, strict=True):
            if each["live"] != streams:
                raise _ended(line)
        return figures

    @staticmethod
    def _line(generator: subprocess.Popen[str], due: float, late: str) -> str:
        out = generator.stdout
        if out is None or not select.select([out], [], [], max(0.0, due - time.monotonic()))[0]:
            raise BenchmarkError(late)
        if not (line := out.readline()):
            raise BenchmarkError("a load generator ended")
        return line.strip()


def _ended(line: str) -> BenchmarkError:
    return BenchmarkError(f"a stream was refused or cut off: {line}")
