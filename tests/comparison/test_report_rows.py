"""The rows of a report that is kept for as long as a gateway runs."""

from __future__ import annotations

import json
from typing import Any

from gateway.serving.comparison.answer_forms import AnswerChoice, WholeAnswer
from gateway.serving.comparison.report import ComparisonReport
from gateway.serving.comparison.verdict import ComparisonRules

_MANY = 2048  # prompts that a request may have
_LONG = 200_000  # characters


def rows(a: tuple[AnswerChoice, ...], b: tuple[AnswerChoice, ...], most_rows: int | None) -> list[dict[str, Any]]:
    report = ComparisonReport(ComparisonRules(), show_text=True, most_rows=most_rows)
    report.take({"request": 1, "name": "x", "endpoint": "/v1/completions"}, WholeAnswer(a, None), WholeAnswer(b, None))
    found: list[dict[str, Any]] = report.as_json()["rows"]
    return found


def test_a_row_is_bounded_whatever_an_answer_has() -> None:
    for a, b in (
        (AnswerChoice(text="a" * _LONG), AnswerChoice(text="b" * _LONG)),
        (AnswerChoice(calls=(("f", "a" * _LONG),)), AnswerChoice(calls=(("f", "b" * _LONG),))),
    ):
        for count in (1, _MANY):
            (row,) = rows((a,) * count, (b,) * count, 100)
            assert len(json.dumps(row)) < 50_000
            assert row["differences"][0]["around"]["a"]


def test_a_row_of_a_comparison_that_ends_has_all_of_it() -> None:
    (row,) = rows((AnswerChoice(text="a" * _LONG),) * 20, (AnswerChoice(text="b" * _LONG),) * 20, None)
    assert [len(choice["text"]) for choice in row["b"]["choices"]] == [_LONG] * 20
    assert len(row["differences"]) == 20
