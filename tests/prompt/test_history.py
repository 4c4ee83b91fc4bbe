"""Earlier calls, results and reasoning in the terms of a template whose abilities are known."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.text.prompt import TemplateAbilities, history


def call(arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def assistant(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **more}


RESULT = {"role": "tool", "content": "x", "tool_call_id": "call_1"}


def test_arguments_are_what_the_template_reads() -> None:
    messages = [assistant(call(' {"b": 1, "a": "é"} '), call(""))]
    as_objects = history(messages, TemplateAbilities())[0]["tool_calls"]
    assert [each["function"]["arguments"] for each in as_objects] == [{"b": 1, "a": "é"}, {}]
    as_text = history(messages, TemplateAbilities(arguments="text"))[0]["tool_calls"]
    assert [each["function"]["arguments"] for each in as_text] == ['{"b": 1, "a": "é"}', "{}"]
    assert messages == [assistant(call(' {"b": 1, "a": "é"} '), call(""))]


@pytest.mark.parametrize(
    "arguments",
    ['{"a": "\\u0000"}', '{"a": "\\ud800"}', '{"a": 1e999}', '{"q": 1, "q": 2}', '{"a": [{"q": 1, "q": 1}]}'],
)
def test_arguments_that_an_object_would_damage_stay_text(arguments: str) -> None:
    found = history([assistant(call(arguments))], TemplateAbilities())
    assert found[0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_results_in_plain_form_are_one_message_with_the_question_behind_them() -> None:
    calls = [call("{}", "a"), call('{"b":1}', "b")]
    messages = [
        assistant(*calls, content="Two."),
        {**RESULT, "tool_call_id": "b"},
        {**RESULT, "tool_call_id": "a", "content": "y"},
        {"role": "user", "content": "So?"},
        {"role": "user", "content": "Hm?"},
    ]
    assert history(messages, TemplateAbilities(calls=False, plain_results="user")) == [
        {
            "role": "assistant",
            "content": 'Two.\n[{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"b":1}}]',
        },
        {"role": "user", "content": "Result of f:\ny\n\nResult of f:\nx\n\nSo?"},
        {"role": "user", "content": "Hm?"},
    ]


def test_an_empty_name_is_no_name() -> None:
    messages = [{"role": "user", "content": "x", "name": ""}]
    assert history(messages, TemplateAbilities()) == [{"role": "user", "content": "x"}]
