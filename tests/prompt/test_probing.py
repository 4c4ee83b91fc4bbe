"""What is found out about templates, and that nothing of a conversation vanishes in any of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.text.prompt import ChatTemplate, TemplateAbilities, TemplateError, history
from tests.prompt.conversations import conversations, rendered, words_of
from tests.prompt.traits import TRAITS, template
from tests.rings import examples
from tests.tokens.build import FIXED, byte_level

QUICK = settings(FIXED, max_examples=examples(25, long=300))


ROME = '{"city":"Rome"}'


def call(arguments: str = ROME, name: str = "weather", call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], text: str = "", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls), **more}


def result(text: str = "Sunny.", call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call_id, **more}


ASK, AGAIN = {"role": "user", "content": "Weather?"}, {"role": "user", "content": "And now?"}
ANSWER = {"role": "assistant", "content": "It is sunny."}
LOOP = [ASK, calling(call()), result(), ANSWER, AGAIN]


def text_of(name: str, messages: list[dict[str, Any]], *, tools: bool = False) -> str:
    return rendered(template(name), messages, tools=tools)


def check_nothing_vanishes(messages: list[dict[str, Any]], names: list[str], *, tools: bool) -> None:
    for name in names:
        try:
            text = text_of(name, messages, tools=tools)
        except TemplateError as refusal:
            assert refusal.by_author, (name, refusal.detail, messages)  # noqa: PT017 - in the template's own words
            continue
        missing = [word for word in words_of(messages) if word not in text]
        assert not missing, (name, missing, text, messages)


@QUICK
@given(conversations(), st.booleans())
def test_nothing_of_a_conversation_vanishes(messages: list[dict[str, Any]], tools: bool) -> None:
    check_nothing_vanishes(messages, list(TRAITS), tools=tools)


@pytest.mark.parametrize("name", sorted(TRAITS))
@pytest.mark.parametrize("tools", [False, True])
def test_every_template_takes_a_tool_loop(name: str, tools: bool) -> None:
    two = [call(), call('{"city":"Oslo"}', call_id="call_2")]
    loops = [ASK, calling(*two, text="Let me see."), result(), result("Rain.", "call_2"), ANSWER, *LOOP]
    for messages in (loops[:4], loops, [*loops, calling(call(call_id="call_3")), result("Fog.", "call_3")]):
        text = text_of(name, messages, tools=tools)
        shown = ("weather", "city", "Rome", "Oslo", "Let me see.", "Sunny.", "Rain.")
        assert all(word in text for word in shown), text
        assert '\\"city\\"' not in text
        assert "'city'" not in text
        assert "None" not in text


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        ("qwen3", '<assistant><tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call><tool>Sunny.'),
        ("ministral3", '[assistant][CALL]weather[ARGS]{"city": "Rome"}[R]Sunny.'),
        ("deepseek_r1", '<A><call>weather\n{"city":"Rome"}</call><R>Sunny.'),
        ("deepseek_v31_own", '<assistant><call>weather<sep>{"city": "Rome"}</call><tool>Sunny.'),
        ("kimi", '<assistant><call>weather:0<args>{"city": "Rome"}<weather>## Return of call_1\nSunny.'),
        ("functionary", '<assistant>>>>weather\n{"city":"Rome"}<tool>Sunny.'),
        ("glm", "<assistant><call>weather<key>city</key><value>Rome</value></call><tool>Sunny."),
        ("null_reasoning", '<assistant>{"name": "weather", "arguments": {"city": "Rome"}}<tool>Sunny.'),
        ("needs_result_names", '<assistant>{"name": "weather", "arguments": {"city": "Rome"}}<tool>Sunny.'),
        ("refuses_result_names", '<assistant>{"name": "weather", "arguments": {"city": "Rome"}}<tool>Sunny.'),
        (
            "smollm2",
            '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
            "<|im_end|>\n<|im_start|>tool\n<tool_response>\nSunny.\n</tool_response><|im_end|>\n",
        ),
        (
            "any_role",
            '<|im_start|>assistant\n[{"name": "weather", "arguments": {"city":"Rome"}}]<|im_end|>\n'
            "<|im_start|>tool\nResult of weather:\nSunny.<|im_end|>\n",
        ),
        (
            "chatml",
            '<|im_start|>assistant\n[{"name": "weather", "arguments": {"city":"Rome"}}]<|im_end|>\n'
            "<|im_start|>tool\nResult of weather:\nSunny.<|im_end|>\n",
        ),
        (
            "llama3",
            '<|start_header_id|>assistant<|end_header_id|>\n\n[{"name": "weather", "arguments": {"city":"Rome"}}]'
            "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\nResult of weather:\nSunny.<|eot_id|>",
        ),
        ("granite33", '<assistant>[{"name": "weather", "arguments": {"city":"Rome"}}]<tool>Result of weather:\nSunny.'),
        ("gemma2", '<assistant>[{"name": "weather", "arguments": {"city":"Rome"}}]<user>Result of weather:\nSunny.'),
        ("silent", '<assistant>[{"name": "weather", "arguments": {"city":"Rome"}}]<user>Result of weather:\nSunny.'),
    ],
)
def test_a_call_and_its_result(name: str, turn: str) -> None:
    assert turn in text_of(name, LOOP)
    assert turn in text_of(name, LOOP[:3])


def test_calls_that_a_template_writes_beside_tools_only() -> None:
    assert '{"name": "weather", "arguments": {"city": "Rome"}}<tool>Sunny.' in text_of(
        "calls_with_tools", LOOP, tools=True
    )
    assert '<assistant>[{"name": "weather", "arguments": {"city":"Rome"}}]<tool>Result of' in text_of(
        "calls_with_tools", LOOP
    )


def test_ids_of_nine_letters_and_digits_for_call_and_result() -> None:
    text = text_of("mistral_nemo", LOOP)
    short = text.partition('"id": "')[2][:9]
    assert short.isalnum()
    assert f"[RESULTS]Sunny. {short}[/RESULTS]" in text
    own = [ASK, calling(call(call_id="abcdef123")), result(call_id="abcdef123")]
    assert '"id": "abcdef123"' in text_of("mistral_nemo", own)


def test_several_calls_come_one_by_one_where_only_one_is_taken() -> None:
    messages = [ASK, calling(call(), call(ROME, "time", "call_2"), text="Both."), result("Noon.", "call_2"), result()]
    assert text_of("llama31", messages) == (
        '<user>Weather?<assistant>Both.<assistant>{"name": "weather", "parameters": {"city": "Rome"}}<tool>Sunny.'
        '<assistant>{"name": "time", "parameters": {"city": "Rome"}}<tool>Noon.<a>'
    )
    assert text_of("gpt_oss_first", messages).count("<call ") == 2


def test_the_system_message_is_shown_during_a_tool_loop() -> None:
    system = {"role": "system", "content": "Be brief."}
    assert "[INST]Be brief.\n\nWeather?[/INST][CALLS]" in text_of("mistral_nemo", [system, ASK, *LOOP[1:3]])
    assert text_of("mistral_nemo", [system, ASK]) == "[INST]Be brief.\n\nWeather?[/INST]"
    assert text_of("mistral_nemo", [system]) == "[INST]Be brief.[/INST]"


def test_several_system_messages_are_one_where_one_is_shown() -> None:
    systems = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}]
    assert text_of("deepseek_r1", [*systems, ASK]) == "Be brief.\n\nBe kind.<U>Weather?"
    late = [systems[0], ASK, ANSWER, systems[1], AGAIN]
    assert text_of("gpt_oss_first", late).startswith("Be brief.\n\nBe kind.<user>")
    assert "<|im_start|>system\nBe kind." in text_of("chatml", late)


def test_a_system_message_that_would_vanish_is_refused_by_name() -> None:
    with pytest.raises(TemplateError, match="leaves out developer messages") as refusal:
        text_of("silent", [ASK, ANSWER, {"role": "developer", "content": "Be brief."}, AGAIN])
    assert refusal.value.param == "messages[2].role"
    assert refusal.value.by_author


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("chatml", "<|im_start|>user name=ann\nWeather?"),
        ("kimi", "<ann>Weather?"),
        ("llama3", "<|end_header_id|>\n\nann: Weather?"),
        ("smollm2", "<|im_start|>user\nann: Weather?"),
        ("any_role", "<|im_start|>user\nann: Weather?"),
        ("hermes", "<|im_start|>user\nann: Weather?"),
    ],
)
def test_the_name_of_a_participant(name: str, shown: str) -> None:
    assert shown in text_of(name, [{**ASK, "name": "ann"}])


def test_the_name_of_a_tool_is_no_participant_s() -> None:
    assert "name=" not in text_of("chatml", LOOP)
    own = text_of("hermes", [ASK, calling(call()), result(name="weather")])
    assert "<tool_response>\nSunny.\n" in own
    assert "<tool_response>\nbarometer: Sunny.\n" in text_of("hermes", [ASK, calling(call()), result(name="barometer")])


@pytest.mark.parametrize(
    ("name", "shown"), [("kimi", "<user>onetwo"), ("only_parts", "<user>onetwo"), ("hermes", "user\none\ntwo<")]
)
def test_several_parts_are_joined_as_the_template_does_or_by_lines(name: str, shown: str) -> None:
    assert shown in text_of(name, [{"role": "user", "content": "one\ntwo", "parts": ["one", "two"]}])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("qwen3", "<think>Hm.</think>Let me see."),
        ("ministral3", "[THINK]Hm.[/THINK]Let me see."),
        ("null_reasoning", "Hm.Let me see."),
        ("mistral_v13", "[THINK]Hm.[/THINK]Let me see."),
        ("gpt_oss", "<|channel|>analysis<|message|>Hm.<|end|>"),
    ],
)
def test_reasoning_of_an_unfinished_turn_is_shown_where_it_has_a_place(name: str, shown: str) -> None:
    messages = [ASK, calling(call(), text="Let me see.", reasoning="Hm."), result()]
    assert shown in text_of(name, messages)
    assert "Hm." not in text_of("hermes", messages)


def test_whether_tools_are_shown() -> None:
    hidden = {name for name in TRAITS if not template(name).shows_tools}
    assert hidden == {
        "mistral_nemo",
        "functionary",
        "null_reasoning", "deepseek_r1", "deepseek_v31_own", "gemma2", "silent", "only_parts", "needs_result_names",
        "refuses_result_names", "any_role", "chatml", "llama3",
    }  # fmt: skip


def test_whether_definitions_of_schemas_are_shown() -> None:
    shown = {name for name in TRAITS if template(name).shows_tools}
    assert {name for name in shown if not template(name).abilities(tools=True).definitions} == {"gpt_oss"}


def test_the_messages_of_a_request_stay_as_they_are() -> None:
    messages = [ASK, calling(call(), text="a", name="ann"), result(), ANSWER]
    before = json.loads(json.dumps(messages))
    for each in map(template, TRAITS):
        history(messages, each.abilities(tools=False))
    assert messages == before


def test_probes_are_rendered_once() -> None:
    counted = 0

    class Counting(ChatTemplate):
        def render(self, *args: Any, **more: Any) -> str:
            nonlocal counted
            counted += 1
            return super().render(*args, **more)

    compiled = Counting(TRAITS["mistral_nemo"], byte_level())
    compiled.abilities(tools=True), compiled.abilities(tools=False)
    needed = counted
    assert needed < 250
    compiled.abilities(tools=True), compiled.abilities(tools=False)
    assert counted == needed


def test_arguments_are_what_the_template_reads() -> None:
    messages = [calling(call(' {"b": 1, "a": "é"} '), call(""))]
    for abilities, wanted in (
        (TemplateAbilities(), [{"b": 1, "a": "é"}, {}]),
        (TemplateAbilities(arguments="text"), ['{"b": 1, "a": "é"}', "{}"]),
    ):
        (shown,) = history(messages, abilities)
        assert [each["function"]["arguments"] for each in shown["tool_calls"]] == wanted


@pytest.mark.parametrize(
    "arguments",
    ['{"a": "\\u0000"}', '{"a": "\\ud800"}', '{"a": 1e999}', '{"q": 1, "q": 2}', '{"a": [{"q": 1, "q": 1}]}'],
)
def test_arguments_that_an_object_would_damage_stay_text(arguments: str) -> None:
    found = history([calling(call(arguments))], TemplateAbilities())
    assert found[0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_results_in_plain_form_are_one_message_with_the_question_behind_them() -> None:
    calls = calling(call("{}", "f", "a"), call('{"b":1}', "f", "b"), text="Two.")
    messages = [calls, result("x", "b"), result("y", "a"), ASK, AGAIN]
    assert history(messages, TemplateAbilities(calls=False, plain_results="user")) == [
        {
            "role": "assistant",
            "content": 'Two.\n[{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"b":1}}]',
        },
        {"role": "user", "content": "Result of f:\ny\n\nResult of f:\nx\n\nWeather?"},
        AGAIN,
    ]


def test_an_empty_name_is_no_name() -> None:
    assert history([{**ASK, "name": ""}], TemplateAbilities()) == [ASK]
