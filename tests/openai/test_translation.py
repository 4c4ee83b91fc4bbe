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
        ("messages[7].role", "input[7].role"),
        ("tools[0].function.parameters.type", "tools[1].input_schema.type"),
        ("messages[1].tool_calls[1].function.arguments", "input[1].arguments"),
        ("messages[1].tool_calls[11].function", "input[0].tool_calls[11].function"),
        ("response_formats", "response_formats"),
    ],
)
def test_a_path_is_the_client_s_own(param: str, own: str) -> None:
    assert ORIGINS.path(param) == own
    with pytest.raises(BadRequestError) as rejected, ORIGINS.renaming():
        raise BadRequestError(f"Not '{param}'.", param, "invalid_value")
    assert (rejected.value.param, rejected.value.message) == (own, f"Not '{own}'.")


def test_engine_errors_use_the_same_names() -> None:
    assert ORIGINS.names({"prompt": "messages", "guide": "response_format.json_schema"}) | {} == {
        "messages": "input",
        "response_format": "text.format",
        "response_format.json_schema": "text.format",
        "prompt": "input",
        "guide": "text.format",
    }
