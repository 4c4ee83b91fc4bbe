"""The run of a comparison, and what it found."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway_ops.bench.tally import Durations
from gateway_ops.comparing.answer_forms import Answer
from gateway_ops.comparing.asking import Failure, Outcome, Refusal, Request, ask
from gateway_ops.comparing.targets import Target
from gateway_ops.comparing.verdict import Difference, Kind, Rules, judge

_SHOWN_PERCENTILES = (50, 99)


@dataclass(slots=True)
class Delays:
    """How long one target took for the requests that both answered.

    Attributes:
        first: to the first text of a stream.
        whole: to the end of an answer.
        each: for one token, over the whole answer, by its usage.
    """

    first: Durations = field(default_factory=Durations)
    whole: Durations = field(default_factory=Durations)
    each: Durations = field(default_factory=Durations)

    def add(self, answer: Answer) -> None:
        """Add those of an answer."""
        self.whole.add(answer.whole_s)
        if answer.first_s is not None:
            self.first.add(answer.first_s)
        if answer.usage and answer.usage.completion_tokens:
            self.each.add(answer.whole_s / answer.usage.completion_tokens)

    def as_json(self) -> dict[str, Any]:
        """Percentiles; of tokens a second p99 is what 99 of 100 answers reach. None for what was not measured."""
        rates = {f"p{share}": self.each.percentile(share) for share in _SHOWN_PERCENTILES}
        return {
            "time_to_first_token_ms": _milliseconds(self.first),
            "tokens_per_s": {name: None if not value else round(1 / value, 2) for name, value in rates.items()},
            "whole_answer_ms": _milliseconds(self.whole),
        }


def _milliseconds(durations: Durations) -> dict[str, float | None]:
    values = {f"p{share}": durations.percentile(share) for share in _SHOWN_PERCENTILES}
    return {name: None if value is None else round(value * 1000, 3) for name, value in values.items()}


@dataclass(slots=True)
class Noise:
    """In how many requests A differed from itself.

    Attributes:
        asked: requests that A answered twice.
        differed: of them those with another answer.
        aspects: in what, and in how many.
    """

    asked: int = 0
    differed: int = 0
    aspects: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Plan:
    """How requests are sent and judged.

    Attributes:
        at_once: requests at the same time; each goes to one target after the other.
        timeout_s: seconds for an answer.
        repeat: whether A is asked a second time.
        rules: what counts as a difference.
        show_text: whether rows have texts, which may repeat secrets of the requests.
    """

    at_once: int = 4
    timeout_s: float = 300.0
    repeat: bool = False
    rules: Rules = field(default_factory=Rules)
    show_text: bool = False


class Comparison:
    """Sends the same requests to two targets and keeps what differs.

    Attributes:
        counts: of requests, by what came of them.
        aspects: of requests that differ, by in what.
        rows: of requests, by their place.
        delays: of A and of B.
        noise: of A; None where it is asked once.
    """

    def __init__(self, a: Target, b: Target, plan: Plan) -> None:
        self.counts: Counter[Kind] = Counter()
        self.aspects: Counter[str] = Counter()
        self.rows: dict[int, dict[str, Any]] = {}
        self.delays = (Delays(), Delays())
        self.noise = Noise() if plan.repeat else None
        self._targets = (a, b)
        self._plan = plan
        self._salt = secrets.token_bytes(16)

    async def run(self, requests: Iterable[Request], done: Callable[[], None]) -> None:
        """Send all requests; a cancel ends it early and keeps what was found.

        Args:
            requests: what to send.
            done: called after each of them.
        """
        source = iter(requests)
        tasks = [asyncio.create_task(self._work(source, done)) for _ in range(self._plan.at_once)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def exit_status(self) -> int:
        """0 when requests are answered alike, 1 when some are not, 2 when that cannot be said."""
        if sum(self.counts[kind] for kind in (Kind.DIFFERS, Kind.REFUSED_BY_A, Kind.REFUSED_BY_B)):
            return 1
        return 2 if self.counts[Kind.FAILED] or not self.counts[Kind.EQUAL] else 0

    def as_json(self) -> dict[str, Any]:
        """Plain values: ``noise``, ``requests``, ``differs_in``, ``delays`` and ``rows``."""
        noise = self.noise
        own = noise and {"asked": noise.asked, "differed": noise.differed, "in": dict(noise.aspects.most_common())}
        return {
            "noise": own,
            "requests": {"sent": self.counts.total(), **{kind.value: self.counts[kind] for kind in Kind}},
            "differs_in": dict(self.aspects.most_common()),
            "delays": {side: delays.as_json() for side, delays in zip(("a", "b"), self.delays, strict=True)},
            "rows": [row for _, row in sorted(self.rows.items())],
        }

    async def _work(self, source: Iterator[Request], done: Callable[[], None]) -> None:
        for request in source:
            # Each target is the first as often as the other: what a cache keeps of one may help the next.
            sides = (0, 1) if request.place % 2 else (1, 0)
            outcomes = {side: await self._ask(side, request) for side in sides}
            again = await self._ask(0, request) if self._plan.repeat else None
            self._take(request, outcomes[0], outcomes[1], again)
            done()

    async def _ask(self, side: int, request: Request) -> Outcome:
        return await ask(self._targets[side], request, self._plan.timeout_s)

    def _take(self, request: Request, a: Outcome, b: Outcome, again: Outcome | None) -> None:
        kind, differences = judge(a, b, self._plan.rules)
        own = self._own_noise(a, again)
        if kind is Kind.DIFFERS and {each.aspect for each in differences} <= own:
            kind = Kind.UNSTEADY
        self.counts[kind] += 1
        if kind is Kind.DIFFERS:
            self.aspects.update({each.aspect for each in differences})
        if isinstance(a, Answer) and isinstance(b, Answer):
            self.delays[0].add(a)
            self.delays[1].add(b)
        self.rows[request.place] = self._row(request, kind, (a, b), differences, own)

    def _own_noise(self, a: Outcome, again: Outcome | None) -> set[str]:
        """The aspects in which A's two answers differ."""
        if self.noise is None or not isinstance(a, Answer) or not isinstance(again, Answer):
            return set()
        aspects = {each.aspect for each in judge(a, again, self._plan.rules)[1]}
        self.noise.asked += 1
        self.noise.differed += bool(aspects)
        self.noise.aspects.update(aspects)
        return aspects

    def _row(
        self,
        request: Request,
        kind: Kind,
        outcomes: tuple[Outcome, Outcome],
        differences: list[Difference],
        own: set[str],
    ) -> dict[str, Any]:
        row: dict[str, Any] = {"request": request.place, "name": request.name, "endpoint": request.path}
        row["outcome"] = kind.value
        if own:
            row["a_differs_from_itself_in"] = sorted(own)
        if kind is Kind.EQUAL:
            return row
        row["differences"] = [self._difference(each) for each in differences]
        row |= {side: self._said(outcome) for side, outcome in zip(("a", "b"), outcomes, strict=True)}
        return row

    def _difference(self, each: Difference) -> dict[str, Any]:
        where = {} if each.choice is None else {"choice": each.choice}
        shown = {"around": each.texts} if self._plan.show_text and each.texts else {}
        return {"in": each.aspect, **where, **each.facts, **shown}

    def _said(self, outcome: Outcome) -> dict[str, Any]:
        """What a row says of an outcome: of texts their lengths and digests, unless they are to be shown."""
        show = self._plan.show_text
        if isinstance(outcome, Failure):
            return {"failed": outcome.kind}
        if isinstance(outcome, Refusal):
            told = {"status": outcome.status, "code": outcome.code, "param": outcome.param}
            return told | ({"message": outcome.message} if show else {})
        first = outcome.first_s
        return {
            "choices": [
                {
                    "characters": len(choice.text),
                    "digest": self._digest(choice.text),
                    **({"text": choice.text} if show else {}),
                }
                for choice in outcome.choices
            ],
            "first_token_ms": None if first is None else round(first * 1000, 3),
            "whole_answer_ms": round(outcome.whole_s * 1000, 3),
        }

    def _digest(self, text: str) -> str:
        """The same for the same text in this report only: a plain hash of a short secret could be guessed."""
        return hmac.new(self._salt, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:12]
