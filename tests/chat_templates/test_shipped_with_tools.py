"""Each shipped template with a place for tools writes its format exactly: a whole conversation, and more."""

# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from gateway.serving.loading import written_call
from gateway.text.families import CallArguments, CallStart, Content, Reasoning, Tool, ToolPlan
from gateway.text.families.family_choice import ModelEvidence, choose
from gateway.text.families.family_table import FAMILIES
from gateway.text.prompt import TemplateError
from tests.chat_templates.conversation import (
    ANSWER,
    CLOCK_JSON,
    MESSAGES,
    ROOT,
    THANKS,
    TOOLS,
    TOOLS_JSON,
    WEATHER_JSON,
    template,
)
from tests.families.harness import parse

HERE = {path.stem for path in (ROOT / "chat_templates").glob("*.jinja")} - {"chatml", "llama3"}
"""The templates with a place for tools; the two others have tests of their own beside the prompt room's."""

FAMILY = {
    "deepseek_v3": "deepseek_v3",
    "deepseek_v31": "deepseek_v31",
    "gpt_oss": "harmony",
    "granite3": "granite",
    "hermes": "hermes",
    "llama3_json": "llama3_json",
    "mistral_v7": "mistral",
    "mistral_v11": "mistral_v11",
    "mistral_v13": "mistral_v11",
    "phi4_mini": "phi4",
}
ZURICH = '{"city": "Zürich \\"ZH\\""}'


def test_hermes() -> None:
    assert template("hermes").render([*MESSAGES, ANSWER, THANKS], tools=TOOLS) == (
        "<|im_start|>system\nBe brief.\n\n"
        "You can call functions. Their definitions are JSON, one to a line:\n"
        f"<tools>\n{WEATHER_JSON}\n{CLOCK_JSON}\n</tools>\n"
        "To call one, write an object with its name and its arguments between tags, once for each call:\n"
        '<tool_call>\n{"name": "<function>", "arguments": {"<argument>": "<value>"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n"
        "<|im_start|>user\nWeather and time?<|im_end|>\n"
        "<|im_start|>assistant\nOne moment.\n"
        f'<tool_call>\n{{"name": "get_weather", "arguments": {ZURICH}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call><|im_end|>\n'
        '<|im_start|>tool\n<tool_response>\n{"celsius": 21}\n</tool_response>\n'
        "<tool_response>\n12:00\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n21 °C, noon.<|im_end|>\n"
        "<|im_start|>user\nThanks<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_llama3_json() -> None:
    def turn(role: str, text: str) -> str:
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"

    functions = "".join(f"\n{json.dumps(tool, indent=4)}\n" for tool in TOOLS)
    assert template("llama3_json", bos="<|begin_of_text|>").render([*MESSAGES, ANSWER, THANKS], tools=TOOLS) == (
        "<|begin_of_text|>"
        + turn(
            "system",
            "Be brief.\n\nYou can call functions. To call one, answer with JSON alone: "
            '{"name": "<function>", "parameters": {"<argument>": "<value>"}}; '
            "several calls are separated by semicolons. The functions:\n" + functions,
        )
        + turn("user", "Hi")
        + turn("assistant", "Hello!")
        + turn("user", "Weather and time?")
        + turn(
            "assistant",
            f'One moment.\n\n{{"name": "get_weather", "parameters": {ZURICH}}}; '
            '{"name": "clock", "parameters": {}}',
        )
        + turn("ipython", '{"celsius": 21}')
        + turn("ipython", "12:00")
        + turn("assistant", "21 °C, noon.")
        + turn("user", "Thanks")
        + "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_mistral_v7() -> None:
    assert template("mistral_v7", bos="<s>", eos="</s>").render([*MESSAGES, ANSWER], tools=TOOLS) == (
        "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]Hello!</s>"
        f"[AVAILABLE_TOOLS]{TOOLS_JSON}[/AVAILABLE_TOOLS][INST]Weather and time?[/INST]"
        f'One moment.[TOOL_CALLS][{{"name": "get_weather", "arguments": {ZURICH}, "id": "aaaaaaaa1"}}, '
        '{"name": "clock", "arguments": {}, "id": "aaaaaaaa2"}]</s>'
        '[TOOL_RESULTS]aaaaaaaa1[TOOL_CONTENT]{"celsius": 21}[/TOOL_RESULTS]'
        "[TOOL_RESULTS]aaaaaaaa2[TOOL_CONTENT]12:00[/TOOL_RESULTS]"
        "21 °C, noon.</s>"
    )


def test_mistral_v11() -> None:
    assert template("mistral_v11", bos="<s>", eos="</s>").render([*MESSAGES, ANSWER], tools=TOOLS) == (
        "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]Hello!</s>"
        f"[AVAILABLE_TOOLS]{TOOLS_JSON}[/AVAILABLE_TOOLS][INST]Weather and time?[/INST]"
        f"One moment.[TOOL_CALLS]get_weather[CALL_ID]aaaaaaaa1[ARGS]{ZURICH}"
        "[TOOL_CALLS]clock[CALL_ID]aaaaaaaa2[ARGS]{}</s>"
        '[TOOL_RESULTS]aaaaaaaa1[TOOL_CONTENT]{"celsius": 21}[/TOOL_RESULTS]'
        "[TOOL_RESULTS]aaaaaaaa2[TOOL_CONTENT]12:00[/TOOL_RESULTS]"
        "21 °C, noon.</s>"
    )


def test_mistral_v13() -> None:
    assert template("mistral_v13", bos="<s>", eos="</s>").render([*MESSAGES, ANSWER], tools=TOOLS) == (
        "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT]"
        f"[AVAILABLE_TOOLS]{TOOLS_JSON}[/AVAILABLE_TOOLS][INST]Hi[/INST][THINK]A greeting.[/THINK]Hello!</s>"
        "[INST]Weather and time?[/INST][THINK]Two calls.[/THINK]One moment."
        f"[TOOL_CALLS]get_weather[ARGS]{ZURICH}[TOOL_CALLS]clock[ARGS]{{}}</s>"
        '[TOOL_RESULTS]{"celsius": 21}[/TOOL_RESULTS][TOOL_RESULTS]12:00[/TOOL_RESULTS]'
        "[THINK]Done.[/THINK]21 °C, noon.</s>"
    )


def test_deepseek_v3() -> None:
    shipped = template("deepseek_v3", bos="<bos>")
    calls = (
        "<｜User｜>Weather and time?<｜Assistant｜>One moment."
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        f"```json\n{ZURICH}\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        '<｜end▁of▁sentence｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>{"celsius": 21}<｜tool▁output▁end｜>\n'
        "<｜tool▁output▁begin｜>12:00<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    )
    assert shipped.render(MESSAGES, tools=TOOLS) == (
        "<bos>Be brief.\n\n# Tools\n\nYou can call these functions:\n"
        f"\n```json\n{WEATHER_JSON}\n```\n\n```json\n{CLOCK_JSON}\n```\n"
        "\nTo call functions, end your answer with:\n"
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>FUNCTION_NAME\n"
        "```json\nARGUMENTS_OBJECT\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n"
        "Repeat the part from <｜tool▁call▁begin｜> to <｜tool▁call▁end｜> for each call."
        "<｜User｜>Hi<｜Assistant｜>Hello!<｜end▁of▁sentence｜>" + calls
    )
    assert shipped.render([*MESSAGES[3:], ANSWER, THANKS], variables={"thinking": True}) == (
        f"<bos>{calls}21 °C, noon.<｜end▁of▁sentence｜><｜User｜>Thanks<｜Assistant｜><think>\n"
    )


def test_deepseek_v31() -> None:
    shipped = template("deepseek_v31", bos="<bos>")
    calls = (
        "<｜User｜>Weather and time?<｜Assistant｜></think>One moment."
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{ZURICH}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
        '<｜tool▁output▁begin｜>{"celsius": 21}<｜tool▁output▁end｜><｜tool▁output▁begin｜>12:00<｜tool▁output▁end｜>'
    )
    assert shipped.render(MESSAGES, tools=TOOLS) == (
        "<bos>Be brief.\n\n## Tools\nYou can call these functions:\n"
        "\n### get_weather\nDescription: Weather of a city.\n\n"
        'Parameters: {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}\n'
        "\n### clock\nDescription: The time.\n\nParameters: {}\n"
        "\nTo call functions, end your answer with exactly this, NAME and ARGUMENTS replaced:\n"
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n"
        "ARGUMENTS is JSON that follows the function's parameters. Further calls follow before <｜tool▁calls▁end｜>, "
        "from <｜tool▁call▁begin｜> to <｜tool▁call▁end｜>, with nothing between them."
        "<｜User｜>Hi<｜Assistant｜></think>Hello!<｜end▁of▁sentence｜>" + calls
    )
    later = [*MESSAGES[3:], ANSWER, THANKS]
    start = f"<bos>{calls}21 °C, noon.<｜end▁of▁sentence｜><｜User｜>Thanks<｜Assistant｜>"
    assert shipped.render(later) == f"{start}</think>"
    assert shipped.render(later, variables={"thinking": True}) == f"{start}<think>"


def test_granite3() -> None:
    def turn(role: str, text: str) -> str:
        return f"<|start_of_role|>{role}<|end_of_role|>{text}<|end_of_text|>\n"

    shipped = template("granite3")
    instruction = (
        "When a tool is needed, answer with <|tool_call|> and a JSON list of calls, each with name and arguments."
    )
    assert shipped.render([*MESSAGES, ANSWER, THANKS], tools=TOOLS, variables={"thinking": True}) == (
        turn("system", f"Be brief. {instruction}")
        + turn("available_tools", json.dumps(TOOLS, indent=4))
        + turn("user", "Hi")
        + turn("assistant", "Hello!")
        + turn("user", "Weather and time?")
        + turn(
            "assistant",
            f'One moment.<|tool_call|>[{{"name": "get_weather", "arguments": {ZURICH}}}, '
            '{"name": "clock", "arguments": {}}]',
        )
        + turn("tool_response", '{"celsius": 21}')
        + turn("tool_response", "12:00")
        + turn("assistant", "21 °C, noon.")
        + turn("user", "Thanks")
        + "<|start_of_role|>assistant<|end_of_role|>"
    )
    documents = [{"doc_id": 7, "text": "It rains."}, {"text": "It snows."}]
    assert shipped.render([THANKS], documents=documents, variables={"thinking": True}) == (
        turn(
            "system",
            "You are a helpful assistant. Answer from the documents only, and say so when they do not tell. "
            "Write your thoughts between <think></think>, then your answer between <response></response>.",
        )
        + turn('document {"document_id": "7"}', "\nIt rains.")
        + turn('document {"document_id": "2"}', "\nIt snows.")
        + turn("user", "Thanks")
        + "<|start_of_role|>assistant<|end_of_role|>"
    )


def test_phi4_mini() -> None:
    assert template("phi4_mini").render([*MESSAGES, ANSWER, THANKS], tools=TOOLS) == (
        '<|system|>Be brief. To call tools, answer with <|tool_call|>[{"name": "NAME", "arguments": {}}]<|/tool_call|>.'
        f"<|tool|>[{WEATHER_JSON}, {CLOCK_JSON}]<|/tool|><|end|>"
        "<|user|>Hi<|end|><|assistant|>Hello!<|end|><|user|>Weather and time?<|end|>"
        f'<|assistant|>One moment.<|tool_call|>[{{"name": "get_weather", "arguments": {ZURICH}}}, '
        '{"name": "clock", "arguments": {}}]<|/tool_call|><|end|>'
        '<|tool_response|>{"celsius": 21}<|end|><|tool_response|>12:00<|end|>'
        "<|assistant|>21 °C, noon.<|end|><|user|>Thanks<|end|><|assistant|>"
    )


BOOK = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Books.\nReally.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {
                    "type": "object",
                    "description": "Where.",
                    "properties": {"x": {"type": "integer"}, "y": {"type": ["number", "null"]}},
                    "required": ["x"],
                },
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a"]},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "more": {},
                "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "boolean"}}]},
            },
            "required": ["place"],
        },
    },
}


def test_gpt_oss() -> None:
    shipped = template("gpt_oss")
    today = datetime.now().astimezone().strftime("%Y-%m-%d")

    def system(effort: str) -> str:
        return (
            "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
            f"Knowledge cutoff: 2024-06\nCurrent date: {today}\n\nReasoning: {effort}\n\n"
            "# Valid channels: analysis, commentary, final. Channel must be included for every message."
        )

    calls = (
        "<|start|>assistant<|channel|>commentary<|message|>One moment.<|end|>"
        f"<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{ZURICH}<|call|>"
        "<|start|>assistant<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}<|call|>"
        '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>{"celsius": 21}<|end|>'
        "<|start|>functions.clock to=assistant<|channel|>commentary<|message|>12:00<|end|>"
    )
    assert shipped.render(MESSAGES, tools=[*TOOLS, BOOK], variables={"reasoning_effort": "high"}) == (
        system("high") + "\nCalls to these tools must go to the commentary channel: 'functions'.<|end|>"
        "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n"
        "# Tools\n\n## functions\n\nnamespace functions {\n\n"
        "// Weather of a city.\ntype get_weather = (_: {\ncity: string,\n}) => any;\n\n"
        "// The time.\ntype clock = () => any;\n\n"
        "// Books.\n// Really.\ntype book = (_: {\n"
        "// Where.\nplace: {\nx: number,\ny?: number | null,\n},\n"
        'tags?: ("a" | "b")[], // default: ["a"]\n'
        'unit?: "c" | "f", // default: c\n'
        "more?: any,\n"
        "either?: string | boolean[],\n"
        "}) => any;\n\n} // namespace functions<|end|>"
        "<|start|>user<|message|>Hi<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hello!<|end|>"
        "<|start|>user<|message|>Weather and time?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Two calls.<|end|>" + calls + "<|start|>assistant"
    )
    # The final answer ends the need for the reasoning before it.
    assert shipped.render([*MESSAGES[3:], ANSWER, THANKS]) == (
        system("medium") + "<|end|><|start|>user<|message|>Weather and time?<|end|>" + calls
        + "<|start|>assistant<|channel|>final<|message|>21 °C, noon.<|end|>"
        "<|start|>user<|message|>Thanks<|end|><|start|>assistant"
    )  # fmt: skip


def test_gpt_oss_refuses_results_without_a_call() -> None:
    with pytest.raises(TemplateError, match="tool_call_id is unknown") as refusal:
        template("gpt_oss").render([THANKS, MESSAGES[-1]])
    assert refusal.value.by_author


@pytest.mark.parametrize("name", sorted(HERE))
def test_a_family_parses_what_the_template_asks_for(name: str) -> None:
    shipped = template(name)
    choice = choose(ModelEvidence(template=shipped.source, written=written_call(shipped)))
    assert (choice.family.name, choice.doubts) == (FAMILY[name], {})


@pytest.mark.parametrize("name", sorted(HERE))
def test_arguments_that_are_text_are_written_as_they_are(name: str) -> None:
    def rendered(convert: Any) -> str:
        messages = [dict(message) for message in MESSAGES]
        messages[4]["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": convert(call["function"]["arguments"])}}
            for call in messages[4]["tool_calls"]
        ]
        return template(name).render(messages, tools=TOOLS)

    assert rendered(lambda value: json.dumps(value, ensure_ascii=False)) == rendered(lambda value: value)


@pytest.mark.parametrize("name", sorted(HERE))
def test_without_tools_nothing_is_said_of_them(name: str) -> None:
    shipped = template(name)
    plain = shipped.render([THANKS])
    assert plain == shipped.render([THANKS], tools=[])
    assert "tool" not in plain
    assert "Thanks" in plain


@pytest.mark.parametrize("name", sorted(HERE - {"granite3"}))
def test_documents_have_no_place(name: str) -> None:
    with pytest.raises(TemplateError, match="no place for documents") as refusal:
        template(name).render([THANKS], documents=[{"text": "a"}])
    assert refusal.value.by_author


@pytest.mark.parametrize("name", sorted(HERE))
def test_what_the_template_writes_the_family_reads(name: str) -> None:
    """The assistant's turn of the history, taken for an answer, has its text and its calls."""
    shipped, family = template(name), FAMILIES[FAMILY[name]]
    prompt = shipped.render(MESSAGES[3:4], tools=TOOLS)
    whole = shipped.render(MESSAGES[3:5], tools=TOOLS, add_generation_prompt=False)
    assert whole.startswith(prompt)
    answer = whole.removeprefix(prompt)
    for end in ("<eos>", "<|im_end|>\n", "<|eot_id|>", "<｜end▁of▁sentence｜>", "<|end_of_text|>\n", "<|end|>"):
        answer = answer.removesuffix(end)
    turn = ToolPlan(tools=(Tool("get_weather"), Tool("clock")), choice="auto")
    events = parse(family.parser(turn, family.prepare(turn, prompt), prompt), [answer])
    calls = [event for event in events if isinstance(event, CallStart)]
    arguments = [json.loads(event.text) for event in events if isinstance(event, CallArguments)]
    assert [call.name for call in calls] == ["get_weather", "clock"]
    assert arguments == [{"city": 'Zürich "ZH"'}, {}]
    assert "".join(event.text for event in events if isinstance(event, Content)).strip() == "One moment."
    reasoning = [event.text for event in events if isinstance(event, Reasoning)]
    assert reasoning == (["Two calls."] if name in {"gpt_oss", "mistral_v13"} else [])
