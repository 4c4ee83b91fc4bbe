"""The example call as a chat template writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.families.example_call import ARGUMENTS, EXAMPLE, WrittenCall
from gateway.prompt import ChatTemplate, TemplateError, history

_USER = {"role": "user", "content": "How is the weather?"}
_TEXT = {"role": "assistant", "content": "Let me see."}
_FUNCTION = {"name": EXAMPLE.name, "arguments": json.dumps(ARGUMENTS)}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call_a", "type": "function", "function": _FUNCTION}],
}


_TOKEN = re.compile(r"<[^<>\s]*>|\[/?[A-Z_]+\]")


def written_call(template: ChatTemplate) -> WrittenCall | None:
    """The example, without what the template writes for a text as well; None where it shows no calls."""
    if not template.abilities(tools=True).calls:
        return None
    try:
        spoken, called = (_render(template, [_USER, message]) for message in (_TEXT, _CALL))
        opening = _render(template, [_USER], opened=True)[len(_render(template, [_USER])) :]
    except TemplateError:
        return None
    begin = _common(spoken, called)
    end = len(called) - _common(spoken[begin:][::-1], called[begin:][::-1])
    if opening.strip() and opening in called[begin:end]:
        begin = called.rindex(opening, begin, end) + len(opening)
    for token in _TOKEN.finditer(called):  # a token that the two begin or end alike is one whole
        begin = token.start() if token.start() < begin < token.end() else begin
        end = token.end() if token.start() < end < token.end() else end
    return WrittenCall(called[:begin], called[begin:end]) if EXAMPLE.name in called[begin:end] else None


def _render(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], *, opened: bool = False) -> str:
    function = {"name": EXAMPLE.name, "description": EXAMPLE.description, "parameters": EXAMPLE.parameters}
    shown = history(messages, template.abilities(tools=True))
    return template.render(shown, tools=[{"type": "function", "function": function}], add_generation_prompt=opened)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with together."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
