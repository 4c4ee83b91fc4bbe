"""The content of a message as it grows, and the events that tell of it: one block is open at a time."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from gateway.anthropic.messages.signatures import signature_of

Event = dict[str, Any]
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
_FIELDS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}


class ContentBlocks:
    """Collects the blocks of one answer. A family's parser ends a call before it begins the next.

    Attributes:
        blocks: those so far; the last one may be open.
        texts: pieces of the open block's text, reasoning or arguments.
    """

    __slots__ = ("_kind", "_shows_thinking", "blocks", "texts")

    def __init__(self, *, shows_thinking: bool = True) -> None:
        """Begin without blocks.

        Args:
            shows_thinking: whether the client sees reasoning; else only its signature has it.
        """
        self.blocks: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self._kind = ""  # of the open block; empty where none is open
        self._shows_thinking = shows_thinking

    def open_text(self) -> list[Event]:
        """Have a block of text open."""
        return [] if self._kind == "text" else self._begin("text", {"type": "text", "text": ""})

    def text(self, text: str) -> list[Event]:
        """Add text."""
        return [*self.open_text(), self._delta(text)]

    def reasoning(self, text: str) -> list[Event]:
        """Add reasoning."""
        events: list[Event] = []
        if self._kind != "thinking":
            events = self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        if self._shows_thinking:
            return [*events, self._delta(text)]
        self.texts.append(text)
        return events

    def call(self, call_id: str, name: str) -> list[Event]:
        """Begin a call.

        Args:
            call_id: as the client is told it.
            name: of the tool.
        """
        return self._begin("tool_use", {"type": "tool_use", "id": call_id, "name": name, "input": {}})

    def arguments(self, text: str) -> list[Event]:
        """Add to the arguments of the call."""
        return [self._delta(text)]

    def close(self) -> list[Event]:
        """End the open block, if there is one."""
        kind, self._kind = self._kind, ""
        if not kind:
            return []
        text, block, events = "".join(self.texts), self.blocks[-1], []
        if kind == "thinking":
            block["signature"] = signature_of(text, shown=self._shows_thinking)
            block["thinking"] = text if self._shows_thinking else ""
            events.append(self._event("delta", delta={"type": "signature_delta", "signature": block["signature"]}))
        elif kind == "tool_use":
            if not text.strip():  # clients read the input from deltas alone
                events.append(self._event("delta", delta={"type": "input_json_delta", "partial_json": "{}"}))
            block["input"] = _input(text)
        else:
            block["text"] = text
        return [*events, self._event("stop")]

    def _begin(self, kind: str, block: dict[str, Any]) -> list[Event]:
        events = self.close()
        self.blocks.append(block)
        self._kind, self.texts = kind, []
        return [*events, self._event("start", content_block=dict(block))]

    def _delta(self, text: str) -> Event:
        self.texts.append(text)
        return self._event("delta", delta={"type": _DELTAS[self._kind], _FIELDS[self._kind]: text})

    def _event(self, what: str, **fields: Any) -> Event:
        return {"type": f"content_block_{what}", "index": len(self.blocks) - 1, **fields}


def _input(arguments: str) -> dict[str, Any]:
    """The input of a tool: of arguments that were cut, as much as they have."""
    try:
        value = from_json(arguments, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
