"""Forms of an answer and tool calls."""

from __future__ import annotations

from typing import Any

from tests.recorded.exchange import Case, chat, complete

S: dict[str, Any] = {"stream": True}
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOSE: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
ROME = '{"city": "Rome"}'


def schema(value: Any = CITY, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "place", "schema": value, **more}}


def form(name: str, say: str = ROME, /, **body: Any) -> Case:
    return chat(name, f"<<chunk 8>>{say}", **body)


FORMS: list[Case] = [
    form("json_object", response_format={"type": "json_object"}),
    form("json_schema", response_format=schema()),
    form("json_schema, streamed", response_format=schema(), **S),
    form("json_schema, strict but loose, streamed", response_format=schema(LOOSE, strict=True), **S),
    form("json_schema without its wrapper", response_format={"type": "json_schema", "json_schema": CITY}),
    form("json_schema with the schema one level up",
         response_format={"type": "json_schema", "json_schema": {"name": "place", **CITY}}),
    form("json_schema with a bad name", response_format={"type": "json_schema", "json_schema": {"name": "a b"}}),
    form("json_schema that is cut", response_format=schema(), max_tokens=5),
    form("a wrong schema", response_format=schema({"type": "thing"})),
    form("a schema with a reference that leads nowhere", response_format=schema({"$ref": "#/$defs/nothing"})),
    form("a schema that guides cannot hold", response_format=schema({"type": "array", "uniqueItems": True})),
    form("a schema with formats and bounds", "{}", response_format=schema({
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date"},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "code": {"type": "string", "pattern": "^[a-z]{2}$"},
            "kind": {"enum": ["a", "b", None]},
            "parts": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"const": 5}]}, "minItems": 1},
        },
        "required": ["day"],
    })),
    form("a schema that allows nothing", response_format=schema(False)),
    form("json without a schema", response_format={"type": "json"}),
    form("regex", "aaa", response_format={"type": "regex", "regex": "a+"}),
    form("a broken regex", response_format={"type": "regex", "regex": "a("}),
    form("a regex with a look-ahead", response_format={"type": "regex", "regex": "a(?=b)"}),
    form("ebnf", "ab", response_format={"type": "ebnf", "ebnf": 'root ::= "ab"'}),
    form("structural_tag", "<a>{}</a>", response_format={
        "type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a>"]
    }),
    form("a structural tag without triggers", response_format={"type": "structural_tag", "structures": []}),
    form("an unknown type", response_format={"type": "poem"}),
    form("structured_outputs: choice", "yes", structured_outputs={"choice": ["yes", "no."]}),
    form("structured_outputs: two at once", structured_outputs={"regex": "a", "choice": ["b"]}),
    form("structured_outputs: nothing", structured_outputs={}),
    form("guided_choice", "no.", guided_choice=["yes", "no."]),
    form("json_schema as a field", json_schema=CITY),
    form("two forms", response_format=schema(), guided_regex="a"),
    form("a form with reasoning", f"<think>Well.</think>{ROME}", response_format=schema(), model="reasoner"),
    form("a form of an engine without guides", response_format=schema(), model="bare"),
    form("a form of an engine without guides, ignored", "Hi", response_format=schema(), model="warning"),
    form("validated and wrong", '{"town": "Rome"}', response_format=schema(), model="validating"),
    form("validated and no JSON", "Rome", response_format={"type": "json_object"}, model="validating"),
    form("validated and wrong, streamed", "Rome", response_format=schema(), model="validating", **S),
    complete("completion with a choice, streamed", "say:yes", guided_choice=["yes", "no"], **S),
]  # fmt: skip

# Tools


def tool(name: str = "weather", parameters: Any = CITY, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


def custom(grammar: dict[str, str] | None = None) -> dict[str, Any]:
    form = {} if grammar is None else {"format": {"type": "grammar", "grammar": grammar}}
    return {"type": "custom", "custom": {"name": "note", **form}}


def with_tools(case: str, say: str, /, **body: Any) -> Case:
    return chat(case, f"<<chunk 6>>{say}", **{"tools": TOOLS, **body})


TOOLS = [tool(description="Looks out of the window."), tool("time", {"type": "object", "properties": {}})]
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
TEXT = 'a \\"b\\"\\n\\u00e9'
NOTE = f'<tool_call>\n{{"name": "note", "arguments": {{"input": "{TEXT}"}}}}\n</tool_call>'
FUNCTIONS = [each["function"] for each in TOOLS]

CALLS: list[Case] = [
    with_tools("auto, a call", CALL),
    with_tools("auto, a call, streamed eagerly", CALL, model="reasoner", **S),
    with_tools("auto, text and two calls, streamed", f"Look: {CALL}\n{TIME}", **S),
    with_tools("auto, text only, streamed", "Hello", tool_choice="auto", **S),
    with_tools("auto, a broken call", '<tool_call>\n{"name": "weather", "arguments": {"city"\n</tool_call>'),
    with_tools("auto, a broken call, streamed eagerly", '<tool_call>\n{"name": "weather", "arguments": {"city"',
               model="reasoner", **S),
    with_tools("auto, an unknown tool", '<tool_call>\n{"name": "fly", "arguments": {}}\n</tool_call>'),
    with_tools("auto, a call that is cut", CALL, max_tokens=30),
    with_tools("auto, calls but one at a time", f"{CALL}\n{TIME}", parallel_tool_calls=False),
    with_tools("auto, reasoning and a call, streamed", f"<think>Well.</think>{CALL}", model="reasoner", **S),
    with_tools("auto, several choices", f"{CALL}||Hello", n=2, seed=2),
    with_tools("auto, strict tools that are loose", CALL, tools=[tool(parameters=LOOSE, strict=True)]),
    with_tools("a custom tool, streamed", NOTE, tools=[*TOOLS, custom()], **S),
    with_tools("a custom tool with a grammar, by name", NOTE.replace(TEXT, "ab"),
               tools=[custom({"syntax": "regex", "definition": "[ab]+"})],
               tool_choice={"type": "custom", "custom": {"name": "note"}}),
    with_tools("none, streamed", CALL, tool_choice="none", **S),
    with_tools("required, streamed", CALL, tool_choice="required", **S),
    with_tools("required, cut", CALL, tool_choice="required", max_tokens=25),
    with_tools("required of an engine without guides", CALL, tool_choice="required", model="bare"),
    with_tools("named, streamed", CALL, tool_choice=named("weather"), **S),
    with_tools("named, but there is no such tool", "Hello", tool_choice=named("fly")),
    with_tools("allowed, required, streamed", CALL, tool_choice=allowed("required", "weather"), **S),
    with_tools("a choice of a wrong type", "Hello", tool_choice=5),
    with_tools("a choice of no name", "Hello", tool_choice={"type": "function"}),
    with_tools("two tools of one name", "Hello", tools=[tool(), tool()]),
    with_tools("a tool of another type", "Hello", tools=[{"type": "web_search"}]),
    with_tools("a tool with a wrong schema", "Hello", tools=[tool(parameters={"type": "thing"})]),
    with_tools("a tool with unknown fields", "Hello", tools=[{**tool(), "colour": "red"}]),
    with_tools("tools where the template shows none", "Hello", model="bare"),
    with_tools("tools and a regex", "aa", guided_regex="a+"),
    with_tools("through the ensemble", CALL, model="words"),
    with_tools("of text", CALL, model="text"),
    with_tools("functions, streamed", CALL, tools=None, functions=FUNCTIONS, **S),
    with_tools("functions, named", CALL, tools=None, functions=FUNCTIONS, function_call={"name": "weather"}),
    with_tools("functions and tools", "Hello", functions=FUNCTIONS),
]  # fmt: skip
