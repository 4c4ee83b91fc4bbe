"""An example of a call as a chat template writes it: it tells which family the model is of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gateway.families.registry import ARGUMENTS, EXAMPLE, WrittenCall
from gateway.prompt.errors import TemplateError
from gateway.prompt.template import ChatTemplate

_USER = {"role": "user", "content": "How is the weather?"}
_TEXT = "Let me see."
_ID = "abcdefghi"  # nine letters, as Mistral's templates insist on


def written_calls(template: ChatTemplate) -> list[WrittenCall]:
    """The example in each form in which the template takes it; none where the template shows no calls."""
    try:
        spoken = _render(template, {"role": "assistant", "content": _TEXT})
    except TemplateError:
        return []
    return [each for message in _messages() if (each := _written(template, message, spoken)) is not None]


def _messages() -> Iterator[dict[str, Any]]:
    for arguments in (ARGUMENTS, json.dumps(ARGUMENTS)):
        function = {"name": EXAMPLE.name, "arguments": arguments}
        yield {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": _ID, "type": "function", "function": function}],
        }


def _written(template: ChatTemplate, message: dict[str, Any], spoken: str) -> WrittenCall | None:
    """What the template writes for a call: that in which the conversation differs from the same with a text."""
    try:
        called = _render(template, message)
    except TemplateError:
        return None
    before = _common(spoken, called)
    after = _common(spoken[before:][::-1], called[before:][::-1])
    text = called[before : len(called) - after]
    return WrittenCall(called[:before], text) if EXAMPLE.name in text else None


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with together."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _render(template: ChatTemplate, message: dict[str, Any]) -> str:
    function = {"name": EXAMPLE.name, "description": EXAMPLE.description, "parameters": EXAMPLE.parameters}
    tools = [{"type": "function", "function": function}]
    return template.render([_USER, message], tools=tools, add_generation_prompt=False)
