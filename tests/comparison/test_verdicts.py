"""In what two answers differ."""

from __future__ import annotations

import pytest

from gateway.serving.comparison.answer_forms import AnswerChoice, AnswerToken, Failure, WholeAnswer, outcome_of
from gateway.serving.comparison.verdict import ComparisonRules, OutcomeKind, judge


def answer(*tokens: AnswerToken) -> WholeAnswer:
    return WholeAnswer(
        (AnswerChoice(text="".join(token.text for token in tokens), finish="stop", tokens=tokens),), None
    )


def test_alternatives_that_only_one_gives_are_a_difference() -> None:
    with_some = answer(AnswerToken("a", -0.5, {"a": -0.5, "b": -1.0}), AnswerToken("c", -0.1, {"c": -0.1}))
    without = answer(AnswerToken("a", -0.5, {}), AnswerToken("c", -0.1, {}))
    for a, b, counts in ((with_some, without, {"a": 2, "b": 0}), (without, with_some, {"a": 0, "b": 2})):
        kind, (found,) = judge(a, b, ComparisonRules())
        assert (kind, found.aspect, found.facts) == (
            OutcomeKind.DIFFERS,
            "logprobs",
            {"at_token": 0, "alternatives": counts},
        )
    assert judge(without, without, ComparisonRules())[0] is OutcomeKind.EQUAL
    assert judge(with_some, with_some, ComparisonRules())[0] is OutcomeKind.EQUAL


@pytest.mark.parametrize("levels", [300, 1000, 100_000])
def test_arguments_of_a_call_may_be_nested_without_end(levels: int) -> None:
    nested = '{"a":' * levels + "1" + "}" * levels

    def calling(arguments: str) -> WholeAnswer:
        return WholeAnswer((AnswerChoice(calls=(("f", arguments),)),), None)

    assert judge(calling(nested), calling(nested), ComparisonRules())[0] is OutcomeKind.EQUAL
    assert judge(calling(nested), calling(nested.replace("1", "2")), ComparisonRules())[0] is OutcomeKind.DIFFERS
    body = '{"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": %s}}]}}]}'
    found = outcome_of("/v1/chat/completions", 200, (body % nested).encode(), streamed=False)
    assert isinstance(found, Failure)
