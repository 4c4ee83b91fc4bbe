"""Conversations as agents send them: each template shows all of it, and each result with its call."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.text.prompt import ChatTemplate, TemplateError, history
from tests.conversations.public_templates import public_templates
from tests.conversations.test_control_tokens import tokenizer_of
from tests.prompt.conversations import TOOLS
from tests.prompt.traits import SHIPPED, TRAITS

Messages = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": [*calls]} if calls else {}), **more}


def call(city: str, arguments: str | None = None, call_id: str = "") -> dict[str, Any]:
    function = {"name": f"look{city}", "arguments": json.dumps({"place": city}) if arguments is None else arguments}
    return {"id": call_id or f"call_{city}", "type": "function", "function": function}


def result(city: str, call_id: str = "") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id or f"call_{city}", "content": f"of{city}"}


def system(text: str, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


ROME, OSLO = call("Rome"), call("Oslo")
CASES: dict[str, Messages] = {
    "results in the order in which they came": [
        user("ask1"), assistant("", ROME, OSLO), result("Oslo"), result("Rome")
    ],
    "a message between a call and its result": [user("ask1"), assistant("", ROME), user("ask2"), result("Rome")],
    "an answer between a call and its result": [
        user("ask1"), assistant("", ROME), assistant("said1"), result("Rome"), user("ask2")
    ],
    "one result of two": [user("ask1"), assistant("", ROME, OSLO), result("Oslo"), user("ask2")],
    "a call without a result": [user("ask1"), assistant("", ROME), user("ask2")],
    "an id that two turns use": [
        user("ask1"), assistant("", call("Rome", call_id="f:0")), result("Rome", "f:0"), assistant("said1"),
        user("ask2"), assistant("", call("Oslo", call_id="f:0")), result("Oslo", "f:0"),
    ],
    "user messages in a row": [
        user("ask1"), user("ask2"), user("ask3"), assistant("said1"), user("ask4"), user("ask5")
    ],
    "assistant messages in a row": [user("ask1"), assistant("said1"), assistant("said2"), user("ask2")],
    "an agent's beginning": [system("rule1", "developer"), user("ask1"), user("ask2")],
    "text behind a result": [
        user("ask1"), assistant("", ROME), result("Rome"), user("ask2"), assistant("", OSLO), result("Oslo"),
        user("ask3"), assistant("said1"), user("ask4"),
    ],
    "a system message, a result and text behind it": [
        system("rule1"), user("ask1"), assistant("", ROME), result("Rome"), user("ask2")
    ],
    "calls without results": [
        user("ask1"), assistant("", ROME), assistant("said1"), user("ask2"), assistant("", OSLO), assistant("", ROME),
        result("Rome"),
    ],
    "text beside calls": [
        user("ask1"), assistant("said1", ROME), result("Rome"), assistant("said2", OSLO), result("Oslo"),
        assistant("said3"), user("ask2"),
    ],
    "text, then a call": [user("ask1"), assistant("said1"), assistant("", ROME), result("Rome")],
    "arguments that were cut": [user("ask1"), assistant("", call("Rome", '{"cut1')), result("Rome"), user("ask2")],
    "arguments that are an array": [user("ask1"), assistant("", call("Rome", '[1, "cut1"]')), result("Rome")],
    "arguments with a key twice": [
        user("ask1"), assistant("", call("Rome", '{"a": "cut1", "a": "cut2"}')), result("Rome")
    ],
    "a system message between questions": [system("rule1"), user("ask1"), system("rule2"), user("ask2")],
    "a system message in a tool loop": [
        system("rule1"), user("ask1"), assistant("", ROME), system("rule2"), result("Rome")
    ],
}  # fmt: skip
_WORD = re.compile(r"(?:ask|said|rule|cut)\d|(?:look|of)[A-Z]\w+|Rome|Oslo")
_SHOWS_NO_SYSTEM = {"silent"}
_SHIPPED = {path.stem: path.read_text() for path in SHIPPED.glob("*.jinja")}
NAMES = sorted({*_SHIPPED, *TRAITS} - _SHOWS_NO_SYSTEM)
_BESIDE = "messages[1].content, messages[3].content"


@functools.cache
def template(name: str) -> ChatTemplate:
    source = _SHIPPED.get(name) or TRAITS.get(name) or public_templates()[name]
    return ChatTemplate(source, tokenizer_of(source))


def prompt_of(name: str, messages: Sequence[dict[str, Any]], changed: list[str] | None = None) -> str:
    used = template(name)
    tools = TOOLS if used.shows_tools else None
    return used.render(history(messages, used.abilities(tools=tools is not None), changed), tools=tools)


def check_all_is_shown(name: str) -> None:
    for case, messages in CASES.items():
        text = prompt_of(name, messages)
        words = set(_WORD.findall(json.dumps([{**each, "tool_call_id": ""} for each in messages])))
        assert not {word for word in words if word not in text}, (name, case, text)


def check_results_follow_their_calls(name: str) -> None:
    case = CASES["results in the order in which they came"]
    assert prompt_of(name, case) == prompt_of(name, [*case[:2], case[3], case[2]]), name
    between = CASES["a message between a call and its result"]
    assert prompt_of(name, between) == prompt_of(name, [*between[:2], between[3], between[2]]), name
    again = prompt_of(name, CASES["an id that two turns use"])
    assert again.index("lookRome") < again.index("ofRome") < again.rindex("lookOslo") < again.index("ofOslo"), name


each_check = pytest.mark.parametrize("check", [check_all_is_shown, check_results_follow_their_calls])


@each_check
@pytest.mark.parametrize("name", NAMES)
def test_conversations_of_agents_by_shipped_templates(check: Callable[[str], None], name: str) -> None:
    check(name)


@pytest.mark.long
@each_check
def test_conversations_of_agents_by_public_templates(check: Callable[[str], None]) -> None:
    for name in public_templates():
        check(name)


@pytest.mark.parametrize(
    ("name", "case", "shown", "named"),
    [
        ("mistral_nemo", "user messages in a row", "[INST]ask1\n\nask2\n\nask3[/INST]said1", ""),
        ("gemma2", "assistant messages in a row", "<user>ask1<assistant>said1\n\nsaid2<user>ask2", ""),
        ("chatml", "user messages in a row", "ask1<|im_end|>\n<|im_start|>user\nask2", ""),
        ("gemma2", "an agent's beginning", "<user>rule1\n\nask1\n\nask2", "messages[0].role"),
        ("mistral_nemo", "text beside calls", "[INST]ask1\n\nsaid1[/INST][CALLS]", _BESIDE),
        ("mistral_nemo", "text beside calls", "ofRome\n\nsaid2", _BESIDE),
        ("mistral_nemo", "text behind a result", "ofRome\n\nask2", "messages[3].content, messages[6].content"),
        ("deepseek_v31_own", "arguments that were cut", '<call>lookRome<sep>"{\\"cut1"</call>', ""),
        ("glm", "arguments that were cut", '<call>lookRome<key>arguments</key><value>{"cut1</value>', ""),
        ("deepseek_r1", "arguments that were cut", '<call>lookRome\n{"cut1</call>', ""),
    ],
)
def test_what_has_no_place_in_a_template_stands_elsewhere_and_is_named(
    name: str, case: str, shown: str, named: str
) -> None:
    changed: list[str] = []
    assert shown in prompt_of(name, CASES[case], changed)
    assert ", ".join(changed) == named


def test_a_system_message_alone_is_the_users_where_it_would_vanish() -> None:
    changed: list[str] = []
    assert "[INST]rule1[/INST]" in prompt_of("mistral_nemo", [{"role": "system", "content": "rule1"}], changed)
    assert changed == ["messages[0].role"]
    changed.clear()
    assert "rule1" in prompt_of("chatml", [{"role": "system", "content": "rule1"}], changed)
    assert changed == []


@pytest.mark.parametrize("name", ["mistral_nemo", "gemma2"])
def test_parts_of_joined_turns_stand_apart(name: str) -> None:
    parts = {"role": "user", "content": "ask2\nask3", "parts": ["ask2", "ask3"]}
    assert "ask1\n\nask2\nask3\n\nask4" in prompt_of(name, [user("ask1"), parts, user("ask4")])


def test_an_empty_answer_is_no_turn_where_the_template_rejects_it() -> None:
    conversation = [user("ask1"), assistant(""), user("ask2")]
    assert "[user]ask1\n\nask2" in prompt_of("ministral3", conversation)
    assert "<|im_start|>assistant\n<|im_end|>" in prompt_of("chatml", conversation)
    assert "[THINK]thought1" in prompt_of(
        "ministral3", [user("ask1"), assistant("", reasoning="thought1"), user("ask2")]
    )


THINKS = (
    "{% for m in messages %}<{{ m.role }}>{% if thinking and m.reasoning_content %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}"
    "{% endfor %}"
)


def test_reasoning_is_shown_where_a_variable_of_the_request_switches_it_on() -> None:
    used = ChatTemplate(THINKS, tokenizer_of(""))
    loop = [user("ask1"), assistant("", ROME, reasoning="thought1"), result("Rome")]
    for variables, count in (({"thinking": True}, 1), ({"thinking": False}, 0), ({}, 0), ({"other": "x"}, 0)):
        shown = history(loop, used.abilities(tools=False, variables=variables))
        assert used.render(shown, variables=variables).count("thought1") == count


def test_what_one_request_gives_a_variable_changes_nothing_for_another() -> None:
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content if not m.tool_calls }}{% for c in m.tool_calls or [] %}"
    used = ChatTemplate(source + "{{ c.function | tojson }}{% endfor %}{% endfor %}{{ note }}", tokenizer_of(""))
    marks = "marktexta marktextb markbearer markthought markvaluea"
    spoilt = used.abilities(tools=False, variables={"note": marks})
    assert spoilt == used.abilities(tools=False, variables={"note": "Be nice."}) == used.abilities(tools=False)
    assert spoilt.text_with_calls == "before"


@pytest.mark.parametrize("values", [(True, False), ("x", ""), (5, 0), ("on", "off")])
def test_values_that_a_template_tells_apart_are_probed_apart(values: tuple[Any, Any]) -> None:
    used = ChatTemplate(THINKS.replace("if thinking and", "if thinking and thinking != 'off' and"), tokenizer_of(""))
    on, off = (used.abilities(tools=False, variables={"thinking": value}).reasoning for value in values)
    assert (on, off) == ("reasoning_content", None)


def test_a_client_cannot_have_a_template_probed_for_each_value() -> None:
    used = ChatTemplate(THINKS + "{{ date }}", tokenizer_of(""))
    first = used.abilities(tools=False, variables={"date": "today"})
    assert all(used.abilities(tools=False, variables={"date": f"day {day}"}) is first for day in range(100))


def test_a_template_that_wants_a_question_first_rejects_an_answer_in_its_own_words() -> None:
    with pytest.raises(TemplateError, match="alternate") as rejected:
        prompt_of("mistral_nemo", [assistant("said1"), user("ask1")])
    assert rejected.value.by_author
