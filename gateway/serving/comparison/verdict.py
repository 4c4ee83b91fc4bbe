"""The verdict on two outcomes of one request: equal, or the aspects that differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.serving.comparison.answer_forms import AnswerChoice, AnswerToken, Failure, Outcome, Refusal, WholeAnswer
from gateway.text.harmless import one_line

_AROUND = 40  # characters shown before and behind the first that differs
_LONGEST_WORD = 32
_NEAR_LENGTH = 0.01  # of a vector: lengths that differ by less are equal


class OutcomeKind(str, Enum):
    """The outcome of a comparison."""

    EQUAL = "equal"
    DIFFERS = "differs"
    REJECTED_BY_A = "refused_by_a"
    REJECTED_BY_B = "refused_by_b"
    REJECTED_BY_BOTH = "refused_by_both"
    UNSTEADY = "unsteady"  # differs only where A's own answers differ from each other
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AnswerDifference:
    """One difference between two answers.

    Attributes:
        aspect: one of `Aspect`, or ``vectors``, ``scores`` or ``label``.
        choice: the index of the choice; None for the whole answer.
        facts: numbers and plain words.
        texts: texts that may repeat secrets of the request.
    """

    aspect: str
    choice: int | None
    facts: dict[str, Any]
    texts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComparisonRules:
    """The rules that define a difference.

    Attributes:
        ignored: aspects that are not compared.
        tolerance: allowed difference of a token's log-probs.
        drawn: whether answers are drawn by chance: the number of choices, the tokens of the prompt, and whether there
            is a finish reason are all that is compared.
        least_cosine: least cosine of two vectors that count as equal.
        score_tolerance: allowed difference of a score.
    """

    ignored: Collection[str] = ()
    tolerance: float = 0.05
    drawn: bool = False
    least_cosine: float = 0.999
    score_tolerance: float = 0.01


def judge(a: Outcome, b: Outcome, rules: ComparisonRules) -> tuple[OutcomeKind, list[AnswerDifference]]:
    """Compare the outcomes of a request from two servers.

    Args:
        a: outcome of the first server.
        b: outcome of the second server.
        rules: rules of the comparison.

    Returns:
        The kind of outcome, and the differences of two answers.
    """
    if isinstance(a, Failure) or isinstance(b, Failure):
        return OutcomeKind.FAILED, []
    if isinstance(a, Refusal):
        return OutcomeKind.REJECTED_BY_BOTH if isinstance(b, Refusal) else OutcomeKind.REJECTED_BY_A, []
    if isinstance(b, Refusal):
        return OutcomeKind.REJECTED_BY_B, []
    found = [each for each in _differences(a, b, rules) if each.aspect not in rules.ignored]
    return OutcomeKind.DIFFERS if found else OutcomeKind.EQUAL, found


def _differences(a: WholeAnswer, b: WholeAnswer, rules: ComparisonRules) -> Iterator[AnswerDifference]:
    if a.vectors is not None and b.vectors is not None:
        yield from _of_vectors(a.vectors, b.vectors, rules.least_cosine)
    yield from _of_scores(a, b, rules.score_tolerance)
    if len(a.choices) != len(b.choices):
        yield AnswerDifference("choices", None, {"a": len(a.choices), "b": len(b.choices)})
    for index, (mine, other) in enumerate(zip(a.choices, b.choices, strict=False)):
        if not rules.drawn:
            yield from _of_choice(index, mine, other, rules)
        elif (mine.finish is None) != (other.finish is None):
            yield _of_finish(index, mine, other)
    yield from _of_usage(a, b, ("prompt_tokens",) if rules.drawn else ("prompt_tokens", "completion_tokens"))


def _of_vectors(a: NDArray[np.float64], b: NDArray[np.float64], least: float) -> Iterator[AnswerDifference]:
    """The first vector that has another direction or length, and the place at which the other server has it."""
    for name, sizes in zip(("count", "dimensions"), zip(a.shape, b.shape, strict=True), strict=True):
        if sizes[0] != sizes[1]:
            yield AnswerDifference("vectors", None, {name: {"a": sizes[0], "b": sizes[1]}})
            return
    lengths = [np.linalg.norm(each, axis=1) for each in (a, b)]
    units = [each / np.where(size > 0, size, 1)[:, None] for each, size in zip((a, b), lengths, strict=True)]
    cosines = (units[0] * units[1]).sum(axis=1)
    unlike = np.flatnonzero(~((cosines >= least) & np.isclose(lengths[0], lengths[1], rtol=_NEAR_LENGTH)))
    if not unlike.size:
        return
    first = int(unlike[0])
    facts: dict[str, Any] = {"vector": first, "cosine": round(float(cosines[first]), 6)}
    if not cosines[first] >= least and np.nanmax(others := units[1] @ units[0][first], initial=-1) >= least:
        facts["place_in_b"] = int(np.nanargmax(others))
    facts["length"] = {side: round(float(size[first]), 6) for side, size in zip(("a", "b"), lengths, strict=True)}
    yield AnswerDifference("vectors", None, {**facts, "unlike": int(unlike.size)})


def _of_scores(a: WholeAnswer, b: WholeAnswer, tolerance: float) -> Iterator[AnswerDifference]:
    """The score that differs most, else the first rank with another input; and the first label that differs."""
    answers = {"a": a.scores or {}, "b": b.scores or {}}
    inputs = sorted({index for scores in answers.values() for index in scores})
    width = max((len(each.values) for scores in answers.values() for each in scores.values()), default=1)
    rows = [[[*(s[i].values if i in s else ()), *[np.nan] * width][:width] for i in inputs] for s in answers.values()]
    gaps = np.nan_to_num(np.abs(np.array(rows[0]) - rows[1]), nan=np.inf).reshape(-1, width)
    if unlike := int((gaps > tolerance).any(axis=1).sum()):
        row, column = divmod(int(gaps.argmax()), width)
        sides = {side: round(each[row][column], 6) for side, each in zip(answers, rows, strict=True)}
        shown = {side: None if np.isnan(value) else value for side, value in sides.items()}
        where = {"input": inputs[row], **({"class": column} if width > 1 else {})}
        yield AnswerDifference("scores", None, {**where, **shown, "unlike": unlike})
    for rank, (x, y) in enumerate(() if unlike else zip(*answers.values(), strict=True)):
        if abs(answers["a"][x].values[0] - answers["a"][y].values[0]) > 2 * tolerance:
            yield AnswerDifference("scores", None, {"rank": rank, "input": {"a": x, "b": y}})
            break
    shared = sorted(answers["a"].keys() & answers["b"].keys())
    labels = {i: {side: scores[i].label for side, scores in answers.items()} for i in shared}
    if others := [i for i, label in labels.items() if label["a"] != label["b"]]:
        yield AnswerDifference("label", None, {"input": others[0], "unlike": len(others)}, labels[others[0]])


def _of_choice(index: int, a: AnswerChoice, b: AnswerChoice, rules: ComparisonRules) -> Iterator[AnswerDifference]:
    texts: tuple[tuple[str, Callable[[AnswerChoice], str]], ...] = (
        ("text", lambda choice: choice.text + choice.refusal),
        ("reasoning", lambda choice: choice.reasoning),
    )
    token = _first_other_token(a.tokens, b.tokens)
    for aspect, text in texts:
        if text(a) != text(b):
            yield _of_text(aspect, index, text(a), text(b), token if aspect == "text" else None)
    if [_call(*call) for call in a.calls] != [_call(*call) for call in b.calls]:
        yield AnswerDifference("calls", index, {"a": len(a.calls), "b": len(b.calls)}, {"a": a.calls, "b": b.calls})
    if a.finish != b.finish:
        yield _of_finish(index, a, b)
    yield from _of_log_probs(index, a, b, token, rules.tolerance)


def _of_finish(index: int, a: AnswerChoice, b: AnswerChoice) -> AnswerDifference:
    facts = {side: each.finish and one_line(each.finish)[:_LONGEST_WORD] for side, each in (("a", a), ("b", b))}
    return AnswerDifference("finish_reason", index, facts)


def _of_text(aspect: str, index: int, a: str, b: str, token: int | None) -> AnswerDifference:
    place = next((at for at, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), min(len(a), len(b)))
    facts: dict[str, Any] = {"at_character": place, "characters": {"a": len(a), "b": len(b)}}
    if token is not None:
        facts["at_token"] = token
    begin, end = max(0, place - _AROUND), place + _AROUND
    return AnswerDifference(aspect, index, facts, {"a": a[begin:end], "b": b[begin:end]})


def _call(name: str, arguments: str) -> tuple[str, Any]:
    """A call as a program takes it: spaces between the arguments mean nothing."""
    try:
        value = orjson.loads(arguments)
        orjson.dumps(value)  # rejects a value that is too deep to compare
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return name, arguments
    return name, value


def _of_usage(a: WholeAnswer, b: WholeAnswer, names: Sequence[str]) -> Iterator[AnswerDifference]:
    counts = {
        name: {side: each.usage and getattr(each.usage, name) for side, each in (("a", a), ("b", b))} for name in names
    }
    facts: dict[str, Any] = {name: sides for name, sides in counts.items() if sides["a"] != sides["b"]}
    if facts:
        estimated = [side for side, each in (("a", a), ("b", b)) if each.usage and each.usage.estimated]
        yield AnswerDifference("usage", None, facts | ({"estimated": estimated} if estimated else {}))


def _first_other_token(a: tuple[AnswerToken, ...] | None, b: tuple[AnswerToken, ...] | None) -> int | None:
    """The place of the first token that is another one; None where nothing tells, or there is none."""
    if a is None or b is None:
        return None
    for place, (mine, other) in enumerate(zip(a, b, strict=False)):
        if mine.text != other.text:
            return place
    return None if len(a) == len(b) else min(len(a), len(b))


def _of_log_probs(
    index: int, a: AnswerChoice, b: AnswerChoice, other_token: int | None, tolerance: float
) -> Iterator[AnswerDifference]:
    """The log-probs of the tokens before the first that is another one: those behind it follow another text."""
    if a.tokens is None or b.tokens is None:
        if a.tokens is not b.tokens:
            counts = {side: each.tokens and len(each.tokens) for side, each in (("a", a), ("b", b))}
            yield AnswerDifference("logprobs", index, {"tokens": counts})
        return
    if other_token is not None and a.text == b.text:
        yield AnswerDifference("logprobs", index, {"other_token_at": other_token})
    pairs = list(zip(a.tokens[:other_token], b.tokens[:other_token], strict=False))
    alone = next((at for at, (x, y) in enumerate(pairs) if bool(x.alternatives) != bool(y.alternatives)), None)
    if alone is not None:
        counts = {side: len(each.alternatives) for side, each in zip(("a", "b"), pairs[alone], strict=True)}
        yield AnswerDifference("logprobs", index, {"at_token": alone, "alternatives": counts})
    distances = [_distance(mine, other) for mine, other in pairs]
    beyond = [place for place, value in enumerate(distances) if not value <= tolerance]
    if beyond:
        values = {"a": a.tokens[beyond[0]].log_prob, "b": b.tokens[beyond[0]].log_prob}
        yield AnswerDifference("logprobs", index, {"at_token": beyond[0], **values, "largest": max(distances)})


def _distance(a: AnswerToken, b: AnswerToken) -> float:
    """Return the largest distance of log-probs at one place, among the tokens and their shared alternatives."""
    shared = a.alternatives.keys() & b.alternatives.keys()
    return max([_gap(a.log_prob, b.log_prob), *(_gap(a.alternatives[t], b.alternatives[t]) for t in shared)])


def _gap(a: float, b: float) -> float:
    return 0.0 if a == b else abs(a - b)  # the distance of equal infinities is 0
