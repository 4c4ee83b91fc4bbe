"""An example of a call as a chat template writes it: it tells which family the model is of."""

from __future__ import annotations

import json
from typing import Any

from gateway.families.registry import ARGUMENTS, EXAMPLE, WrittenCall
from gateway.prompt.errors import TemplateError
from gateway.prompt.history import history
from gateway.prompt.template import ChatTemplate

_USER = {"role": "user", "content": "How is the weather?"}
_TEXT = {"role": "assistant", "content": "Let me see."}
_FUNCTION = {"name": EXAMPLE.name, "arguments": json.dumps(ARGUMENTS)}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call_a", "type": "function", "function": _FUNCTION}],
}


def written_call(template: ChatTemplate) -> WrittenCall | None:
    """The example, without what the template writes for a text as well; None where it shows no calls."""
    if not template.abilities(tools=True).calls:
        return None
    try:
        spoken, called = (_render(template, message) for message in (_TEXT, _CALL))
    except TemplateError:
        return None
    before = _common(spoken, called)
    after = _common(spoken[before:][::-1], called[before:][::-1])
    text = called[before : len(called) - after]
    return WrittenCall(called[:before], text) if EXAMPLE.name in text else None


def _render(template: ChatTemplate, message: dict[str, Any]) -> str:
    function = {"name": EXAMPLE.name, "description": EXAMPLE.description, "parameters": EXAMPLE.parameters}
    messages = history([_USER, message], template.abilities(tools=True))
    return template.render(messages, tools=[{"type": "function", "function": function}], add_generation_prompt=False)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with together."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
