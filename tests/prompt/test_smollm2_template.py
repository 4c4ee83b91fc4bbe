"""The template of the embedded model: plain chat as it was, tools shown by turns that call them, calls read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from gateway.serving.loading import written_call
from gateway.text.families import CallArguments, CallStart, Content, Tool, ToolPlan
from gateway.text.families.family_choice import ModelEvidence, choose
from gateway.text.prompt import history
from tests.families.harness import parse
from tests.prompt.conversations import conversations
from tests.prompt.traits import template
from tests.rings import examples
from tests.tokens.build import FIXED

QUICK = settings(FIXED, max_examples=examples(50))
EMBEDDED, PLAIN = template("smollm2"), template("any_role")
ADD = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
ASK = {"role": "user", "content": "What is 3 plus 4?"}


def tool(name: str, description: str | None = None, parameters: Any = None) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}


def calling(arguments: str, text: str = "") -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def rendered(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, *, opened: bool = True) -> str:
    shown = history(messages, EMBEDDED.abilities(tools=bool(tools)))
    return EMBEDDED.render(shown, tools=tools, add_generation_prompt=opened)


def example_arguments(text: str) -> list[Any]:
    """The arguments of the calls in a prompt."""
    return [json.loads(part.split("\n</tool_call>")[0])["arguments"] for part in text.split("<tool_call>\n")[1:]]


@QUICK
@given(conversations())
def test_plain_chat_is_what_it_is_without_a_place_for_tools(messages: list[dict[str, Any]]) -> None:
    plain = [message for message in messages if message["role"] != "tool" and not message.get("tool_calls")]
    for opened in (True, False):
        ours, theirs = (
            each.render(history(plain, each.abilities(tools=False)), add_generation_prompt=opened)
            for each in (EMBEDDED, PLAIN)
        )
        assert ours == theirs


@pytest.mark.parametrize(
    "messages", [[], [{"role": "system", "content": None}], [{"role": "assistant", "content": None}]]
)
def test_bare_conversations_are_too(messages: list[dict[str, Any]]) -> None:
    assert EMBEDDED.render(messages) == PLAIN.render(messages) == EMBEDDED.render(messages, tools=[])


def test_the_tools_of_a_request_are_shown_and_called_before_its_conversation() -> None:
    add = tool("add", "Add two numbers. They may be large.", ADD)
    shown = (
        f"\n\nYou can call functions:\n<tools>\n{json.dumps(add['function'])}\n</tools><|im_end|>\n"
        "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\nHello! How can I help you?<|im_end|>\n"
        "<|im_start|>user\nAdd two numbers: 2 and 3<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
        '{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n<tool_response>\n17\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nThe answer is 17.<|im_end|>\n"
    )
    for messages, system in (
        ([ASK], "You are a helpful assistant."),
        ([{"role": "developer", "content": "Be brief."}, ASK], "Be brief."),
    ):
        text = rendered(messages, [add])
        assert text.startswith(f"<|im_start|>system\n{system}{shown}")
        assert text.endswith("<|im_start|>user\nWhat is 3 plus 4?<|im_end|>\n<|im_start|>assistant\n")
        assert example_arguments(text) == [{"a": 2, "b": 3}, {"a": 14, "b": 6}, {"a": 8, "b": 25}]


def test_its_family_is_found_and_reads_a_call_as_it_is_written() -> None:
    assert EMBEDDED.shows_tools
    written = written_call(EMBEDDED)
    choice = choose(
        ModelEvidence(architectures=["LlamaForCausalLM"], model_type="llama", template=EMBEDDED.source, written=written)
    )
    family = choice.family
    assert (written is not None, family.name, choice.doubts) == (True, "hermes", {})
    tools = [tool("add", "Add two numbers.", ADD)]
    prompt = rendered([ASK], tools)
    turn = rendered([ASK, calling('{"a": 3, "b": 4}', "Let me see.")], tools, opened=False).removeprefix(prompt)
    plan = ToolPlan(tools=(Tool("add"),), choice="auto")
    events = parse(family.parser(plan, family.prepare(plan, prompt), prompt), [turn.removesuffix("<|im_end|>\n")])
    assert [event.name for event in events if isinstance(event, CallStart)] == ["add"]
    assert [event.text for event in events if isinstance(event, CallArguments)] == ['{"a": 3, "b": 4}']
    assert "".join(event.text for event in events if isinstance(event, Content)).strip() == "Let me see."


@pytest.mark.parametrize("tools", [None, [tool("add", "Add two numbers.", ADD)]])
def test_calls_and_results_of_the_conversation_are_in_the_form_of_the_examples(tools: Any) -> None:
    messages = [ASK, calling('{"a": 3, "b": 4}'), {"role": "tool", "tool_call_id": "call_1", "content": "7"}]
    assert rendered(messages, tools).endswith(
        "<|im_start|>user\nWhat is 3 plus 4?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
        '{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        (None, {}),
        ({}, {}),
        ({"type": "object", "properties": {}}, {}),
        ({"properties": {"city": {"type": "string"}, "unit": {"type": "string"}}}, {"city": "Rome"}),
        ({"properties": {"unit": {"enum": ["c", "f"]}}, "required": ["unit"]}, {"unit": "c"}),
        ({"properties": {"n": {"type": ["null", "integer"]}}, "required": ["n"]}, {"n": 2}),
        ({"properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}, {"yes": True}),
        ({"properties": {"l": {"type": "array"}, "o": {"type": "object"}}, "required": ["l", "o"]}, {"l": [], "o": {}}),
        (
            {"properties": {"any": True, "no-name": {}}, "required": ["any", "no-name"]},
            {"any": "Rome", "no-name": "Oslo"},
        ),
        ({"required": ["hidden"]}, {"hidden": "Rome"}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {}}}, {}),
    ],
)
def test_examples_have_what_a_schema_requires(parameters: Any, arguments: Any) -> None:
    assert example_arguments(rendered([ASK], [tool("f", None, parameters)]))[0] == arguments


def test_many_tools_are_all_shown_and_three_of_them_called() -> None:
    tools = [tool(f"tool_{number}", f"Does {number}.\n" + "More. " * 200) for number in range(40)]
    text = rendered([ASK], tools)
    assert all(f'"name": "{each["function"]["name"]}"' in text for each in tools)
    assert len(example_arguments(text)) == 3
    assert "<|im_start|>user\nDoes 0.<|im_end|>\n" in text
