"""Breaks control-token text in prompts that travel as text, where a server would read it as control tokens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.text.prompt.control_tokens import ControlTokens

BREAKER = "\u200b"
"""Zero-width space: breaks control-token text of the assistant's own, which the gateway itself may have answered."""


class TokenBreaker:
    """Breaks control-token text in turns of the assistant.

    Attributes:
        changed: paths of texts that were broken.
    """

    def __init__(self, control_tokens: ControlTokens) -> None:
        self.changed: list[str] = []
        self._control_tokens = control_tokens

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages, with control-token text broken where needed."""
        return [
            self._message(each, f"messages[{index}]") if each["role"] == "assistant" else each
            for index, each in enumerate(messages)
        ]

    def _message(self, message: Mapping[str, Any], path: str) -> dict[str, Any]:
        found = {**message, "content": self._text(message["content"], f"{path}.content")}
        if parts := message.get("parts"):
            found["parts"] = self._parts(parts, f"{path}.content")
        if reasoning := message.get("reasoning"):
            found["reasoning"] = self._text(reasoning, f"{path}.reasoning_content")
        if calls := message.get("tool_calls"):
            found["tool_calls"] = [
                self._call(call, f"{path}.tool_calls[{index}].function") for index, call in enumerate(calls)
            ]
        return found

    def _parts(self, parts: Sequence[str], path: str) -> list[str]:
        broken = [self._control_tokens.broken(part, BREAKER) for part in parts]
        if self._control_tokens.occurs_in("".join(broken)):  # a template may put them side by side
            self.changed.append(path)
            broken[:-1] = [part + BREAKER for part in broken[:-1]]
        return broken

    def _call(self, call: Mapping[str, Any], path: str) -> dict[str, Any]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        with contextlib.suppress(ValueError, RecursionError):
            spelled = json.dumps(json.loads(arguments), ensure_ascii=False)
            if self._control_tokens.occurs_in(spelled):  # an escape may stand for the text of a control token
                arguments = spelled
        arguments = self._text(arguments, f"{path}.arguments")
        return {**call, "function": {"name": self._text(name, f"{path}.name"), "arguments": arguments}}

    def _text(self, text: str, path: str) -> str:
        if not self._control_tokens.occurs_in(text):
            return text
        self.changed.append(path)
        return self._control_tokens.broken(text, BREAKER)


def path_of(data: Mapping[str, Any], control_tokens: ControlTokens) -> str:
    """The path of the first control-token text in data, else of the first part of one; ``messages`` without either."""
    found = list(_texts(data, ""))
    whole = (path for path, text in found if control_tokens.occurs_in(text))
    pieces = (path for path, text in found if control_tokens.touches(text))
    return next(whole, None) or next(pieces, "messages")


def _texts(data: Any, path: str) -> Iterator[tuple[str, str]]:
    """Each string of nested data, keys too, with the path of the request that holds it."""
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            inner = path if key == "parts" else f"{path}.{key}" if path else str(key)
            yield inner, str(key)
            if key == "parts":
                for index, text in enumerate(value or ()):
                    yield f"{path}.content[{index}].text", text
            elif not (key == "content" and data.get("parts")):
                yield from _texts(value, inner)
    elif isinstance(data, Sequence):
        for index, value in enumerate(data):
            yield from _texts(value, f"{path}[{index}]")
