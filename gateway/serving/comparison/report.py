"""The report on pairs of outcomes: counts of outcomes, differences of answers, and delays."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.serving.comparison.answer_forms import Failure, Outcome, Refusal, WholeAnswer
from gateway.serving.comparison.durations import Durations
from gateway.serving.comparison.verdict import AnswerDifference, ComparisonRules, OutcomeKind, judge

_SHOWN_PERCENTILES = (50, 99)
# Of a row in a report whose rows are bounded: choices, differences, and characters of an answer.
_MOST_KEPT = 16
_LONGEST_KEPT = 10_000


@dataclass(slots=True)
class TargetDelays:
    """The delays of one server for requests that both completed.

    Attributes:
        first: durations to the first text of a stream.
        whole: durations to the end of an answer.
        each: durations of one token, as the mean over an answer by its usage.
    """

    first: Durations = field(default_factory=Durations)
    whole: Durations = field(default_factory=Durations)
    each: Durations = field(default_factory=Durations)

    def add(self, answer: WholeAnswer) -> None:
        """Add the delays of an answer."""
        self.whole.add(answer.whole_s)
        if answer.first_s is not None:
            self.first.add(answer.first_s)
        if answer.usage and answer.usage.completion_tokens:
            self.each.add(answer.whole_s / answer.usage.completion_tokens)

    def as_json(self) -> dict[str, Any]:
        """Percentiles; None for what was not measured.

        Of tokens a second, p99 is what 99 of 100 answers reach.
        """
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
class SelfDifference:
    """The requests in which A differed from itself.

    Attributes:
        asked: requests that A completed twice.
        differed: requests among them with different answers.
        aspects: number of requests by the aspect that differs.
    """

    asked: int = 0
    differed: int = 0
    aspects: Counter[str] = field(default_factory=Counter)


class ComparisonReport:
    """Compares the outcomes of requests, and holds the differences.

    Attributes:
        counts: number of requests by outcome.
        aspects: number of requests by the aspect that differs.
        delays: delays of A and of B.
        noise: differences of A from itself; None where A gets each request once.
    """

    def __init__(
        self, rules: ComparisonRules, *, repeat: bool = False, show_text: bool = False, most_rows: int | None = None
    ) -> None:
        """Begin with nothing.

        Args:
            rules: what counts as a difference.
            repeat: whether A is asked a second time.
            show_text: whether rows have texts, which may repeat secrets of the requests.
            most_rows: the latest rows that are kept, of requests whose responses are not alike; None: all rows of all.
        """
        self.counts: Counter[OutcomeKind] = Counter()
        self.aspects: Counter[str] = Counter()
        self.delays = (TargetDelays(), TargetDelays())
        self.noise = SelfDifference() if repeat else None
        self._rules = rules
        self._show_text = show_text
        self._bounded = most_rows is not None
        self._most = _MOST_KEPT if self._bounded else None
        self._rows: deque[tuple[int, dict[str, Any]]] = deque(maxlen=most_rows)
        self._salt = secrets.token_bytes(16)

    @property
    def exit_status(self) -> int:
        """0 when answers are equal, 1 when some differ, 2 when that is unknown."""
        return exit_status({kind.value: self.counts[kind] for kind in OutcomeKind})

    def as_json(self) -> dict[str, Any]:
        """Plain values: ``noise``, ``requests``, ``differs_in``, ``delays`` and ``rows``."""
        noise = self.noise
        own = noise and {"asked": noise.asked, "differed": noise.differed, "in": dict(noise.aspects.most_common())}
        return {
            "noise": own,
            "requests": {"sent": self.counts.total(), **{kind.value: self.counts[kind] for kind in OutcomeKind}},
            "differs_in": dict(self.aspects.most_common()),
            "delays": {side: delays.as_json() for side, delays in zip(("a", "b"), self.delays, strict=True)},
            "rows": [row for _, row in sorted(self._rows, key=lambda each: each[0])],
        }

    def take(
        self,
        row: dict[str, Any],
        a: Outcome,
        b: Outcome,
        again: Outcome | None = None,
        rules: ComparisonRules | None = None,
    ) -> OutcomeKind:
        """Compare the outcomes of one request.

        Args:
            row: identity of the request: ``request``, its place, ``name`` and ``endpoint``.
            a: outcome of the first server.
            b: outcome of the second server.
            again: second outcome of the first server.
            rules: rules for this request only.
        """
        kind, differences = judge(a, b, rules or self._rules)
        own = self._own_noise(a, again)
        if kind is OutcomeKind.DIFFERS and {each.aspect for each in differences} <= own:
            kind = OutcomeKind.UNSTEADY
        self.counts[kind] += 1
        if kind is OutcomeKind.DIFFERS:
            self.aspects.update({each.aspect for each in differences})
        if isinstance(a, WholeAnswer) and isinstance(b, WholeAnswer):
            self.delays[0].add(a)
            self.delays[1].add(b)
        if kind is not OutcomeKind.EQUAL or not self._bounded:
            self._rows.append((row["request"], self._row(row, kind, (a, b), differences, own)))
        return kind

    def _own_noise(self, a: Outcome, again: Outcome | None) -> set[str]:
        """The aspects in which A's two answers differ."""
        if self.noise is None or not isinstance(a, WholeAnswer) or not isinstance(again, WholeAnswer):
            return set()
        aspects = {each.aspect for each in judge(a, again, self._rules)[1]}
        self.noise.asked += 1
        self.noise.differed += bool(aspects)
        self.noise.aspects.update(aspects)
        return aspects

    def _row(
        self,
        row: dict[str, Any],
        kind: OutcomeKind,
        outcomes: tuple[Outcome, Outcome],
        differences: list[AnswerDifference],
        own: set[str],
    ) -> dict[str, Any]:
        row = {**row, "outcome": kind.value}
        if own:
            row["a_differs_from_itself_in"] = sorted(own)
        if kind is OutcomeKind.EQUAL:
            return row
        kept = differences[: self._most]
        row["differences"] = [self._difference(each, self._room(kept)) for each in kept]
        row |= {side: self._said(outcome) for side, outcome in zip(("a", "b"), outcomes, strict=True)}
        return row

    def _room(self, parts: Sequence[object]) -> int | None:
        """Characters that each part of a row may have; None where rows are not bounded."""
        return _LONGEST_KEPT // max(len(parts), 1) if self._bounded else None

    def _difference(self, each: AnswerDifference, room: int | None) -> dict[str, Any]:
        where = {} if each.choice is None else {"choice": each.choice}
        texts = each.texts if self._show_text else {}
        if room is not None:
            texts = {side: _clipped(value, room) for side, value in texts.items()}
        shown = {"around": texts} if texts else {}
        return {"in": each.aspect, **where, **each.facts, **shown}

    def _said(self, outcome: Outcome) -> dict[str, Any]:
        """The fields of a row for one outcome; texts appear as lengths and digests, unless texts are requested."""
        show = self._show_text
        if isinstance(outcome, Failure):
            return {"failed": outcome.kind}
        if isinstance(outcome, Refusal):
            described = {"status": outcome.status, "code": outcome.code, "param": outcome.param}
            return described | ({"message": outcome.message} if show else {})
        first, kept = outcome.first_s, outcome.choices[: self._most]
        room = self._room(kept)
        return {
            "choices": [
                {
                    "characters": len(choice.text),
                    "digest": self._digest(choice.text),
                    **({"text": choice.text[:room]} if show else {}),
                }
                for choice in kept
            ],
            "first_token_ms": None if first is None else round(first * 1000, 3),
            "whole_answer_ms": round(outcome.whole_s * 1000, 3),
        }

    def _digest(self, text: str) -> str:
        """The same for the same text in this report only: a plain hash of a short secret could be guessed."""
        return hmac.new(self._salt, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:12]


def _clipped(value: Any, room: int) -> Any:
    """A value, or the beginning of its JSON where that is too long."""
    text = orjson.dumps(value).decode()
    return value if len(text) <= room else text[:room]


def exit_status(counts: Mapping[str, int]) -> int:
    """0 when answers are equal, 1 when some differ, 2 when that is unknown.

    Args:
        counts: number of requests by the values of ``OutcomeKind``.
    """
    if any(counts[kind.value] for kind in (OutcomeKind.DIFFERS, OutcomeKind.REJECTED_BY_A, OutcomeKind.REJECTED_BY_B)):
        return 1
    return 2 if counts[OutcomeKind.FAILED.value] or not counts[OutcomeKind.EQUAL.value] else 0
