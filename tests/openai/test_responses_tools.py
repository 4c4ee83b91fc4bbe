"""Tools of responses: functions, namespaces, custom tools, hosted ones; the choice among them; forms and reasoning."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from tests.app.harness import gateway, rejected, says
from tests.openai.responses_harness import post, streamed, whole
from tests.openai.tools_harness import (
    ALL_KINDS,
    CITY,
    GUIDED,
    UNGUIDED,
    call_text,
    guided_text,
)

ROME = '{"city": "Rome"}'


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": CITY, **more}


def custom(name: str, form: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "custom",
        "name": name,
        "description": f"Does {name}.",
        **({"format": form} if form else {}),
        **more,
    }


def namespace(name: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": f"Tools of {name}.", "tools": list(tools)}


TOOLS = [function("weather", description="Looks out of the window."), function("time", strict=None)]
HOSTED = [
    {"type": kind}
    for kind in (
        "web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation",
        "computer_use_preview", "mcp", "tool_search", "local_shell", "shell", "apply_patch", "not_invented_yet",
    )
]  # fmt: skip


async def both(running: Any, **body: Any) -> list[Response]:
    """The same response, whole and streamed."""
    return [await whole(running, **body), await streamed(running, **body)]


def items(response: Response) -> list[dict[str, Any]]:
    """The output without ids."""
    return [{key: value for key, value in item.to_dict().items() if key != "id"} for item in response.output]


async def test_tools_of_a_namespace_are_shown_joined_and_called_apart(shows: Path) -> None:
    said = call_text("agents__close", ROME) + "\n" + call_text("close", ROME) + "\n" + call_text("b__close", ROME)
    tools = [
        namespace("agents", function("close", description="Closes."), function("open")),
        function("close"),
        namespace("b", custom("close")),
    ]
    async with gateway(shows, says(shows, said), features=UNGUIDED, max_seq_len=8192) as running:
        for answer in await both(running, tools=tools):
            calls = items(answer)
            assert [(call["name"], call.get("namespace")) for call in calls] == [
                ("close", "agents"), ("close", None), ("close", "b"),
            ]  # fmt: skip
            assert [call["type"] for call in calls] == ["function_call", "function_call", "custom_tool_call"]
            assert [tool.to_dict() for tool in answer.tools] == tools
        shown = running.engine.requests[0].prompt.text.partition("<|im_start|>")[0].split("<tool>")[1:]
        functions = [json.loads(each)["function"] for each in shown]
        assert [each["name"] for each in functions] == ["agents__close", "agents__open", "close", "b__close"]
        assert functions[0]["description"] == "Tools of agents.\n\nCloses."


async def test_names_that_are_too_long_or_alike_stay_apart(shows: Path) -> None:
    long, other = "a" * 60, "mcp server!"
    tools = [namespace(long, function("close")), namespace(long + "x", function("close")),
             namespace(other, function("close")), function("x__y"), namespace("x", function("y"))]  # fmt: skip
    async with gateway(shows, says(shows, "x"), features=UNGUIDED, max_seq_len=16384) as running:
        await whole(running, tools=tools)
        shown = running.engine.requests[0].prompt.text.partition("<|im_start|>")[0].split("<tool>")[1:]
        names = [json.loads(each)["function"]["name"] for each in shown]
        assert len(set(names)) == 5
        assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in names)
    said = "\n".join(call_text(name, ROME) for name in names)
    async with gateway(shows, says(shows, said), features=UNGUIDED, max_seq_len=16384) as running:
        for answer in await both(running, tools=tools):
            assert [(call["name"], call.get("namespace")) for call in items(answer)] == [
                ("close", long), ("close", long + "x"), ("close", other), ("x__y", None), ("y", "x"),
            ]  # fmt: skip
        history = [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "c", "name": "close", "namespace": other, "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
        ]
        await whole(running, tools=tools, input=history)  # the same name in every turn


NATIVE = dataclasses.replace(GUIDED, guide_types=ALL_KINDS)
DATE = {"type": "grammar", "syntax": "regex", "definition": r"\d{4}-\d\d"}


@pytest.mark.parametrize("definition", [r"(?<=a)b", "(", r"\bword\b"])
async def test_a_regular_expression_that_no_guide_has_is_only_shown(shows: Path, definition: str) -> None:
    form = {**DATE, "definition": definition}
    for features, choice in ((NATIVE, "auto"), (GUIDED, "required"), (UNGUIDED, "auto")):
        async with gateway(shows, says(shows, "x"), features=features, max_seq_len=4096) as running:
            answer = await post(running, tools=[custom("date", form)], tool_choice=choice)
            assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (200, "tools[0].format"), answer.text
            assert definition in running.engine.requests[0].prompt.text.replace("\\\\", "\\")


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        (HOSTED + TOOLS, {"type": "web_search"}),
        (HOSTED + TOOLS, {"type": "mcp", "server_label": "x"}),
        (HOSTED, "required"),
        (HOSTED + TOOLS, {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}),
    ],
)
async def test_a_choice_that_demands_what_nobody_runs_is_refused(shows: Path, tools: Any, choice: Any) -> None:
    async with gateway(shows, features=GUIDED, max_seq_len=4096) as running:
        answer = await post(running, tools=tools, tool_choice=choice)
        rejected(answer, 400, "tool_choice", "unsupported_parameter")


@pytest.mark.parametrize(
    ("choice", "said", "shown", "called"),
    [
        ("none", "Sunny.", [], []),
        ("required", guided_text(("time", {"city": "x"})), ["weather", "time", "patch"], ["time"]),
        ({"type": "function", "name": "time"}, guided_text(("time", {"city": "x"})), ["weather", "time", "patch"],
         ["time"]),
        ({"type": "custom", "name": "patch"}, guided_text(("patch", {"input": "x"})), ["weather", "time", "patch"],
         ["patch"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "time"}]}, "x", ["time"], []),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, "x", [], []),
        ({"type": "allowed_tools", "mode": "auto",
          "tools": [{"type": "web_search"}, {"type": "custom", "name": "patch"}]}, "x", ["patch"], []),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "time"}]},
         guided_text(("time", {"city": "x"})), ["weather", "time", "patch"], ["time"]),
    ],
)  # fmt: skip
async def test_every_form_of_the_choice(
    shows: Path, choice: Any, said: str, shown: list[str], called: list[str]
) -> None:
    async with gateway(shows, says(shows, said), features=GUIDED, max_seq_len=4096) as running:
        for answer in await both(running, tools=[*TOOLS, custom("patch")], tool_choice=choice):
            assert [item["name"] for item in items(answer) if item["type"] != "message"] == called
            told = answer.tool_choice
            assert (told if isinstance(told, str) else told.to_dict()) == choice
        parts = running.engine.requests[-1].prompt.text.partition("<|im_start|>")[0].split("<tool>")[1:]
        assert [json.loads(part)["function"]["name"] for part in parts] == shown


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"tools": [{"type": 7}]}, "tools[0].type", "invalid_type"),
        ({"tools": [{}]}, "tools[0].type", "missing_required_parameter"),
        ({"tools": ["x"]}, "tools[0]", "invalid_type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
        ({"tools": [function("a b")]}, "tools[0].name", "invalid_value"),
        ({"tools": [function("a", strict="yes")]}, "tools[0].strict", "invalid_type"),
        ({"tools": [{"type": "web_search"}, function("a"), function("a")]}, "tools[2].name", "invalid_value"),
        ({"tools": [function("a", parameters={"type": "array"})]}, "tools[0].parameters.type",
         "invalid_function_parameters"),
        ({"tools": [namespace("n", function("a", parameters={"type": 7}, strict=True))]},
         "tools[0].tools[0].parameters.type", "invalid_json_schema"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools", "missing_required_parameter"),
        ({"tools": [{"type": "custom", "name": ""}]}, "tools[0].name", "invalid_value"),
        ({"tools": [function(f"f{n}", description="a" * 8000) for n in range(150)]}, "tools", "array_above_max_length"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tools": TOOLS, "tool_choice": "some"}, "tool_choice", "invalid_value"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.name", "missing_required_parameter"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name", "invalid_value"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", "invalid_value"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "x", "tools": TOOLS}}, "tool_choice.mode",
         "invalid_value"),
        ({"tools": TOOLS,
          "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]}},
         "tool_choice.tools[0].name", "invalid_value"),
    ],
)  # fmt: skip
async def test_bad_tools(shows: Path, body: dict[str, Any], param: str, code: str) -> None:
    async with gateway(shows, features=GUIDED, max_seq_len=4096) as running:
        answer = await post(running, **body)
        error = rejected(answer, 400, param, code)
        assert ".function" not in error["message"]


async def test_tools_among_the_items(shows: Path) -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [function("weather"), function("moon")]}
    conversation = [{"role": "user", "content": "Hi"}, more]
    said = call_text("moon", ROME)
    async with gateway(shows, says(shows, said), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await whole(running, tools=[function("weather")], input=conversation)
        assert [item["name"] for item in items(answer)] == ["moon"]
        shown = running.engine.requests[-1].prompt.text.partition("<|im_start|>")[0].split("<tool>")[1:]
        assert [json.loads(part)["function"]["name"] for part in shown] == ["weather", "moon"]


JSON_SCHEMA = {"type": "json_schema", "name": "place", "schema": CITY, "strict": True}


@pytest.mark.parametrize(
    ("form", "kind"),
    [({"type": "text"}, None), ({"type": "json_object"}, "json_schema"), (JSON_SCHEMA, "json_schema"),
     ({**JSON_SCHEMA, "description": None, "strict": None}, "json_schema")],
)  # fmt: skip
async def test_every_form_of_text(shows: Path, form: dict[str, Any], kind: str | None) -> None:
    async with gateway(shows, says(shows, ROME), features=GUIDED, max_seq_len=4096) as running:
        for answer in await both(running, text={"format": form}):
            assert answer.output_text == ROME
            told = answer.to_dict()["text"]["format"]
            assert {key: value for key, value in told.items() if value is not None} == {
                key: value for key, value in form.items() if value is not None
            }
            guide = running.engine.requests[-1].params.guide
            assert (None if guide is None else guide.kind) == kind


async def test_schemas_outside_the_strict_subset_are_named_by_the_client_s_paths(shows: Path) -> None:
    loose = {"type": "object", "properties": {"city": {"type": "string"}}}
    async with gateway(shows, says(shows, ROME), features=GUIDED, max_seq_len=4096) as running:
        answer = await post(running, text={"format": {**JSON_SCHEMA, "schema": loose}}, tools=[
            {"type": "web_search"}, function("f", parameters=loose, strict=True)], tool_choice="none")  # fmt: skip
        named = answer.headers["x-strict-schema-deviations"]
        assert "text.format.schema" in named
        assert "tools[1].parameters" in named
        assert "function" not in named


async def test_an_answer_without_the_wanted_form_fails(shows: Path) -> None:
    async with gateway(
        shows, says(shows, "No."), features=UNGUIDED, max_seq_len=4096, structured_output_without_guidance="validate"
    ) as running:
        form = {"text": {"format": JSON_SCHEMA}}
        answer = await post(running, **form)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "invalid_model_output")
        assert "'text.format" in answer.json()["error"]["message"]
        response = await streamed(running, **form)
        assert (response.status, response.output_text) == ("failed", "No.")
        assert [item["status"] for item in items(response)] == ["completed"]
