"""Paths in errors of requests that were translated."""

from __future__ import annotations

import pytest

from gateway.api.openai.translation import Translation
from gateway.text.bad_request import BadRequestError

ORIGINS = Translation(
    messages=["instructions", "input[0]", "input[2]"],
    tools=["tools[1]"],
    fields={"messages": "input", "response_format": "text.format", "response_format.json_schema": "text.format"},
    parts={
        "tools[0].function.parameters": "tools[1].input_schema",
        "tools[0].function": "tools[1]",
        "messages[1].tool_calls[1].function": "input[1]",
    },
)


@pytest.mark.parametrize(
    ("param", "own"),
    [
        ("messages[2].content", "input[2].content"),
        ("messages[0]", "instructions"),
        ("messages[7].role", "input[7].role"),
        ("messages", "input"),
        ("tools[0].type", "tools[1].type"),
        ("tools[0].function.name", "tools[1].name"),
        ("tools[0].function.parameters.type", "tools[1].input_schema.type"),
        ("messages[1].tool_calls[1].function.arguments", "input[1].arguments"),
        ("messages[1].tool_calls[11].function", "input[0].tool_calls[11].function"),
        ("response_format.json_schema.schema.properties.a", "text.format.schema.properties.a"),
        ("response_format.type", "text.format.type"),
        ("response_formats", "response_formats"),
        ("temperature", "temperature"),
    ],
)
def test_a_path_is_the_client_s_own(param: str, own: str) -> None:
    assert ORIGINS.path(param) == own
    with pytest.raises(BadRequestError) as rejected, ORIGINS.renaming():
        raise BadRequestError(f"Not '{param}'.", param, "invalid_value")
    assert (rejected.value.param, rejected.value.message, rejected.value.code) == (
        own,
        f"Not '{own}'.",
        "invalid_value",
    )


def test_a_refusal_of_no_parameter_stays_one() -> None:
    with pytest.raises(BadRequestError) as rejected, ORIGINS.renaming():
        raise BadRequestError("No.")
    assert rejected.value.param is None


def test_engine_errors_use_the_same_names() -> None:
    assert ORIGINS.names({"prompt": "messages", "guide": "response_format.json_schema"}) | {} == {
        "messages": "input",
        "response_format": "text.format",
        "response_format.json_schema": "text.format",
        "prompt": "input",
        "guide": "text.format",
    }
