"""An answer is the same to a comparison whichever way it comes, and a difference is what a client would notice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.serving.comparison.answer_forms import (
    AnswerChoice,
    AnswerEventReader,
    AnswerToken,
    Failure,
    RequestFailedError,
    UsageCounts,
    WholeAnswer,
    outcome_of,
)
from gateway.serving.comparison.report import ComparisonReport
from gateway.serving.comparison.verdict import ComparisonRules, OutcomeKind, judge
from gateway_ops.compare.asking import ComparedRequest
from gateway_ops.compare.sampled_requests import Sample

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


def whole(path: str, value: Any) -> WholeAnswer:
    reader = AnswerEventReader(path)
    reader.whole(json.dumps(value).encode())
    return reader.answer()


def streamed(path: str, *events: Any) -> tuple[WholeAnswer, list[bool]]:
    reader = AnswerEventReader(path)
    said = [reader.event(json.dumps(event).encode()) for event in events]
    return reader.answer(), said


def piece(index: int = 0, finish: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}]}


def test_a_streamed_chat_is_the_whole_one() -> None:
    scored = [{"token": text, "logprob": -0.5, "top_logprobs": [{"token": "x", "logprob": -2}]} for text in ("a", "b")]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "ab", "reasoning_content": "so", "tool_calls": [call]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "completion_tokens_details": {"estimated": True}}
    one = {"index": 0, "message": message, "logprobs": {"content": scored}, "finish_reason": "tool_calls"}
    two = {"index": 1, "message": {"content": None}, "finish_reason": "length"}
    answer, said = streamed(
        CHAT,
        piece(role="assistant", content=""),
        piece(reasoning_content="so"),
        piece(content="a", logprobs={"content": scored[:1]}),
        piece(1, "length"),
        piece(content="b", logprobs={"content": scored[1:]}),
        piece(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": ""}}]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": " 1}"}}]),
        piece(finish="tool_calls"),
        {"choices": [], "usage": usage},
    )
    assert answer == whole(CHAT, {"choices": [two, one], "usage": usage})
    tokens = AnswerToken("a", -0.5, {"x": -2}), AnswerToken("b", -0.5, {"x": -2})
    assert answer.choices[0] == AnswerChoice("ab", "so", "", (("f", '{"a": 1}'),), "tool_calls", tokens)
    assert answer.usage == UsageCounts(3, 2, estimated=True)
    assert said == [False, True, True, False, True, True, True, True, False, False]


def test_a_streamed_completion_is_the_whole_one() -> None:
    def logprobs(*texts: str) -> dict[str, Any]:
        return {"tokens": [*texts], "token_logprobs": [-1.0] * len(texts), "top_logprobs": None}

    events = [{"choices": [{"index": 0, "text": text, "logprobs": logprobs(text)}]} for text in ("a", "b")]
    answer, said = streamed(COMPLETIONS, *events, {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    choice = {"index": 0, "text": "ab", "logprobs": logprobs("a", "b"), "finish_reason": "stop"}
    assert answer == whole(COMPLETIONS, {"choices": [choice]})
    assert said == [True, True, False]
    assert answer.usage is None


def test_a_streamed_response_is_the_whole_one() -> None:
    response = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "so"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "ab", "logprobs": []}]},
            {"type": "function_call", "name": "f", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    answer, said = streamed(
        RESPONSES,
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "ab"},
        {"type": "response.incomplete", "response": response},
    )
    assert answer == whole(RESPONSES, response)
    assert answer == WholeAnswer(
        (AnswerChoice("ab", "so", "", (("f", "{}"),), "max_output_tokens"),), UsageCounts(3, 2, estimated=False)
    )
    assert said == [False, True, False]
    with pytest.raises(RequestFailedError, match="a response with the status queued"):
        whole(RESPONSES, {"status": "queued", "output": []})


@pytest.mark.parametrize("score", [None, "high", [], [[1]]])
def test_scores_that_are_no_numbers_are_no_answer(score: Any) -> None:
    for path, listed, name in (("/rerank", "results", "relevance_score"), ("/classify", "data", "probs")):
        with pytest.raises(RequestFailedError, match="another format"):
            whole(path, {listed: [{"index": 0, name: score}]})


def aspects(a: AnswerChoice, b: AnswerChoice, tolerance: float = 0.05) -> list[str]:
    kind, found = judge(WholeAnswer((a,), None), WholeAnswer((b,), None), ComparisonRules(tolerance=tolerance))
    assert (kind is OutcomeKind.EQUAL) == (not found)
    return [each.aspect for each in found]


def scored(*tokens: tuple[str, float]) -> AnswerChoice:
    return AnswerChoice("".join(text for text, _ in tokens), tokens=tuple(AnswerToken(*token, {}) for token in tokens))


def test_log_probs_are_held_against_each_other_up_to_another_token() -> None:
    assert aspects(scored(("a", -1.0), ("b", -2.0)), scored(("a", -1.04), ("b", -2.0))) == []
    assert aspects(scored(("a", -1.0), ("b", -2.0)), scored(("a", -1.0), ("b", -2.06))) == ["logprobs"]
    assert aspects(scored(("a", -1.0)), scored(("a", -1.04)), 0) == ["logprobs"]
    assert aspects(scored(("a", -1.0), ("b", -2.0)), scored(("a", -1.0), ("c", -9.0))) == ["text"]
    assert aspects(scored(("ab", -1.0)), scored(("a", -1.0), ("b", -1.0))) == ["logprobs"]
    assert aspects(scored(("a", -1.0)), AnswerChoice("a")) == ["logprobs"]
    assert aspects(scored(("a", float("-inf"))), scored(("a", float("-inf")))) == []
    _, (text,) = judge(
        WholeAnswer((scored(("a", -1.0), ("bc", -2.0)),), None),
        WholeAnswer((scored(("a", -1.0), ("bd", -2.0)),), None),
        ComparisonRules(),
    )
    assert (text.facts["at_character"], text.facts["at_token"]) == (2, 1)


def test_arguments_of_calls_are_held_against_each_other_as_values() -> None:
    mine, same, other = (
        AnswerChoice(calls=(("f", text),)) for text in ('{"a": 1, "b": 2}', '{"b":2,"a":1}', '{"a": 1}')
    )
    assert aspects(mine, same) == []
    assert aspects(mine, other) == ["calls"]
    assert aspects(mine, AnswerChoice()) == ["calls"]
    assert aspects(AnswerChoice(calls=(("f", "{"),)), AnswerChoice(calls=(("f", "{ "),))) == ["calls"]


def test_usage_that_only_one_tells_is_a_difference() -> None:
    counts = UsageCounts(1, 2, estimated=True)
    _, (found,) = judge(WholeAnswer((), counts), WholeAnswer((), None), ComparisonRules())
    missing = {"prompt_tokens": {"a": 1, "b": None}, "completion_tokens": {"a": 2, "b": None}}
    assert found.facts == missing | {"estimated": ["a"]}
    both = WholeAnswer((), counts), WholeAnswer((), UsageCounts(1, 2, estimated=False))
    assert judge(*both, ComparisonRules())[0] is OutcomeKind.EQUAL


def test_a_sample_is_greedy_varied_and_the_same_for_the_same_seed() -> None:
    sample = list(Sample(50, 1))
    assert sample == list(Sample(50, 1)) != list(Sample(50, 2))
    assert all(request.is_greedy for request in sample)
    bodies = [request.body for request in sample]
    fields = ("stop", "logprobs", "stream", "tools", "response_format", "prompt", "messages")
    assert {name: any(name in body for body in bodies) for name in fields} == dict.fromkeys(fields, True)
    lacking = Sample(50, 1, {"logprobs", "stream"}, 256)
    assert not any(body.keys() & {"logprobs", "stream"} for body in (request.body for request in lacking))
    assert lacking.left_out == {
        "short, streamed": "stream", "long, streamed": "stream", "stop strings, streamed": "stream",
        "completion, streamed": "stream", "other scripts, streamed": "stream", "log-probs": "logprobs",
    }  # fmt: skip
    assert max(longest(request) for request in lacking) < max(longest(request) for request in sample) / 4


def longest(request: ComparedRequest) -> int:
    return max(len(message["content"]) for message in request.body.get("messages", [{"content": ""}]))


def answer(*tokens: AnswerToken) -> WholeAnswer:
    return WholeAnswer(
        (AnswerChoice(text="".join(token.text for token in tokens), finish="stop", tokens=tokens),), None
    )


def test_alternatives_that_only_one_gives_are_a_difference() -> None:
    with_some = answer(AnswerToken("a", -0.5, {"a": -0.5, "b": -1.0}), AnswerToken("c", -0.1, {"c": -0.1}))
    without = answer(AnswerToken("a", -0.5, {}), AnswerToken("c", -0.1, {}))
    for a, b, counts in ((with_some, without, {"a": 2, "b": 0}), (without, with_some, {"a": 0, "b": 2})):
        kind, (found,) = judge(a, b, ComparisonRules())
        facts = {"at_token": 0, "alternatives": counts}
        assert (kind, found.aspect, found.facts) == (OutcomeKind.DIFFERS, "logprobs", facts)
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
