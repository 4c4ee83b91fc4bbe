"""The speed of one engine, from options or results of ``gateway bench`` only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway_ops.plan_fleet.curves import Curve, SizingError


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """The speed of one Triton.

    Attributes:
        slots: most running requests; others wait in its queue.
        step_s: seconds from a token to the next of each running request, by how many run.
        prefill_s: seconds until the first token of a prompt, alone, by its tokens.
        sources: the source of each, as sentences.
        steps: values of ``step_s`` for 0 to ``slots`` running requests.
    """

    slots: int
    step_s: Curve
    prefill_s: Curve
    sources: tuple[str, ...] = ()
    steps: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise SizingError("an engine has at least one slot")
        object.__setattr__(self, "steps", tuple(self.step_s.at(max(1, running)) for running in range(self.slots + 1)))
        if min(self.steps) <= 0:
            raise SizingError("a token must take some time")

    def prefill(self, tokens: float) -> float:
        """The seconds for a number of prompt tokens; beyond the measured lengths in proportion, which is optimistic."""
        first, last = self.prefill_s.points[0], self.prefill_s.points[-1]
        if tokens > last[0]:
            return last[1] * tokens / last[0]
        # A short prompt takes as long as the shortest that was measured, if more than one was: what it costs at least.
        return first[1] * tokens / first[0] if len(self.prefill_s.points) == 1 else self.prefill_s.at(tokens)

    @property
    def token_share_s(self) -> float:
        """The least seconds of the engine for a token, with a full batch."""
        return min(step / running for running, step in enumerate(self.steps) if running)

    def work(self, prompt: float, answer: float) -> float:
        """The least seconds of the engine for a request, with a full batch."""
        return self.prefill(prompt) + (answer - 1) * self.token_share_s


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The facts of one Triton in a result of ``gateway bench``.

    Attributes:
        path: path of the file.
        streams: mean requests in flight.
        alone: whether requests ran one at a time.
        rate: completed requests per second.
        prompt: tokens of a prompt, on the average.
        answer: tokens of an answer, on the average.
        first_s: seconds to the first token, the median.
        first_mean_s: the same, on the average.
        whole_s: seconds to the last token, on the average.
        tokens_s: tokens a second.
    """

    path: Path
    streams: float
    alone: bool
    rate: float
    prompt: float
    answer: float
    first_s: float
    first_mean_s: float
    whole_s: float
    tokens_s: float


def read_bench(path: Path, tritons: int = 1) -> BenchResult:
    """Read a file of ``gateway bench --output``.

    Args:
        path: path of the file.
        tritons: number of Tritons that shared the load.

    Raises:
        SizingError: the file is not from ``gateway bench``, or lacks needed values.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return _result(path, found, tritons)
    except OSError as error:
        raise SizingError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, SizingError):
            raise
        raise SizingError(f"{path} is not a result of gateway bench --output") from None


def _result(path: Path, measured: dict[str, Any], tritons: int) -> BenchResult:
    done, tokens = measured["requests"]["completed"], measured["tokens"]
    if not done or measured["requests_per_s"] is None:
        raise SizingError(f"{path}: no request completed in the measured time")
    if measured["requests"]["failed"] or measured["requests"]["not_sent"]:
        raise SizingError(f"{path}: requests failed or were not sent, so the times do not belong to the named load")
    if tokens["prompt"] is None:
        raise SizingError(f"{path}: the server reported no usage, so the length of prompts is unknown")
    answer = tokens["completion"] / done
    if answer < 2:
        raise SizingError(
            f"{path}: answers of one token do not show the time between tokens; run the bench with --max-tokens 64"
        )
    whole, first = measured["end_to_end_ms"]["mean"] / 1000, measured["time_to_first_token_ms"]
    rate = measured["requests_per_s"] / tritons
    streams = measured["plan"]["streams"]
    return BenchResult(
        path,
        streams=rate * whole if streams is None else streams / tritons,  # Little's law
        alone=streams == 1,
        rate=rate,
        prompt=tokens["prompt"] / done,
        answer=answer,
        first_s=first["p50"] / 1000,
        first_mean_s=first["mean"] / 1000,
        whole_s=whole,
        tokens_s=measured["completion_tokens_per_s"] / tritons,
    )


def engine_costs(
    results: Sequence[BenchResult], slots: int | None, token_ms: Curve | None, prefill_rate: float | None
) -> EngineCosts:
    """Combine options and results to the speed of an engine; options override results.

    Args:
        results: results of ``gateway bench``.
        slots: most running requests.
        token_ms: milliseconds of a step, by running requests.
        prefill_rate: tokens of prompts per second.

    Raises:
        SizingError: a needed value is neither given nor measured.
    """
    sources: list[str] = []
    prefill = _prefill(results, prefill_rate, sources)
    step = _step(results, token_ms, prefill, sources)
    if slots is None:
        slots = max(1, int(step.largest))
        sources.append(
            f"{slots} slots: the most concurrent requests whose speed was measured; --slots sets another number"
        )
    else:
        sources.append(f"{slots} slots: --slots")
        for_any_number = token_ms is not None and len(step.points) == 1
        if slots > step.largest and not for_any_number:
            sources.append(
                f"beyond {step.largest:g} concurrent requests a step is assumed not to be slower, which was not "
                "measured"
            )
    return EngineCosts(slots, step, prefill, tuple(sources))


def _prefill(results: Sequence[BenchResult], rate: float | None, sources: list[str]) -> Curve:
    if rate is not None:
        sources.append(f"{rate:g} prompt tokens per second: --prefill-rate")
        return Curve(((rate, 1.0),))
    alone = {each.prompt: each for each in results if each.alone}
    if not alone:
        raise SizingError(
            "the time of a prompt is unknown: give --prefill-rate, or a --bench of gateway bench --streams 1, "
            "with prompts as long as those of the load"
        )
    sources += [
        f"a prompt of {each.prompt:.0f} tokens takes {each.first_s * 1000:.1f} ms: {each.path}"
        for each in alone.values()
    ]
    return Curve(tuple((prompt, alone[prompt].first_s) for prompt in sorted(alone)))


def _step(results: Sequence[BenchResult], token_ms: Curve | None, prefill: Curve, sources: list[str]) -> Curve:
    if token_ms is not None:
        said = ", ".join(f"{value:g} with {number:g}" for number, value in token_ms.points)
        if len(token_ms.points) == 1:
            said = f"{token_ms.points[0][1]:g}, however many run"
        sources.append(f"milliseconds between tokens, by running requests: {said}: --token-ms")
        return Curve(tuple((number, value / 1000) for number, value in token_ms.points))
    points: dict[float, float] = {}
    for each in results:
        # While a prompt is computed no token is: the prompts of a request's lifetime, but for the time before its first
        # token, which they take too, are in the measured time between tokens, and not in a step.
        prompts = each.rate * each.whole_s * EngineCosts(1, Curve(((1, 1.0),)), prefill).prefill(each.prompt)
        halted = max(0.0, prompts - each.first_mean_s)
        step = (each.whole_s - each.first_mean_s - halted) / (each.answer - 1)
        if step <= 0:
            raise SizingError(
                f"{each.path}: processing its prompts alone would take longer than its responses did: --prefill-rate, "
                "or the result with one stream, belongs to a slower engine or to another cache"
            )
        streams = round(each.streams, 2)
        points[max(1.0, streams)] = step
        sources.append(f"{step * 1000:.2f} ms between tokens with {streams:g} concurrent requests: {each.path}")
    if not points:
        raise SizingError("the time of a token is unknown: give --token-ms, or --bench with results of gateway bench")
    return Curve(tuple(sorted(points.items())))
