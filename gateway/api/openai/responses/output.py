"""The output items of a response and their events.

An item ends before the next one begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.api.openai.chat.answer import logprobs_object
from gateway.api.openai.encryption import OwnerCipher
from gateway.api.openai.responses.stored import item_id
from gateway.api.openai.responses.tools import ToolOrigin
from gateway.generation import TokenLogprob
from gateway.text.families import Content, Reasoning

Event = dict[str, Any]
"""An event without its sequence number, which its writer adds."""

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class OutputItems:
    """Collects the output items of one answer.

    Attributes:
        items: the items so far; the last one may be open.
        texts: pieces of the open item's text, arguments or input.
        place: fields of events that identify the open item.
    """

    __slots__ = ("_cipher", "_entries", "_kind", "_response_id", "items", "place", "texts")

    def __init__(self, response_id: str, cipher: OwnerCipher | None = None) -> None:
        """Begin without items.

        Args:
            response_id: of the response, which the ids of its items name.
            cipher: encrypts reasoning; None where the request does not include it or the gateway has no keys.
        """
        self._response_id = response_id
        self._cipher = cipher
        self.items: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.place: dict[str, Any] = {}
        self._kind = ""  # of the open item; empty where none is open
        self._entries: list[dict[str, Any]] = []

    def message(self) -> list[Event]:
        """Open a message unless one is open."""
        if self._kind == "message":
            return []
        events = self._begin("message", role="assistant", content=[])
        return [*events, _part("added", self.place, _content("message", "", []))]

    def content(self, text: str, entries: Sequence[TokenLogprob] = ()) -> list[Event]:
        """Add text to the message.

        Args:
            text: more of it.
            entries: log-probs of its tokens, where they are wanted.
        """
        events = self.message()
        self.texts.append(text)
        shown = logprobs_object(entries)["content"] if entries else []
        self._entries += shown
        return [*events, self._text_delta(text, shown)]

    def reasoning(self, text: str) -> list[Event]:
        """Add text to the reasoning."""
        events: list[Event] = []
        if self._kind != "reasoning":
            events = self._begin("reasoning", summary=[], content=[])
            events.append(_part("added", self.place, _content("reasoning", "", [])))
        self.texts.append(text)
        return [*events, self._reasoning_delta(text)]

    def delta(self, kind: type[Content | Reasoning]) -> Event | None:
        """Make a delta event with an empty text; None where the open item takes no text of the kind."""
        if self._kind == "message" and kind is Content:
            return self._text_delta("", [])
        return self._reasoning_delta("") if self._kind == "reasoning" and kind is Reasoning else None

    def call(self, tool: ToolOrigin, call_id: str) -> list[Event]:
        """Begin a call.

        Args:
            tool: that is called.
            call_id: of the call.
        """
        fields = {"call_id": call_id, "name": tool.name}
        if tool.namespace:
            fields["namespace"] = tool.namespace
        if tool.custom:
            return self._begin("custom_tool_call", **fields, input="")
        return self._begin("function_call", **fields, arguments="")

    def arguments(self, text: str) -> list[Event]:
        """Add to the arguments of the call, or to the input of a custom tool."""
        self.texts.append(text)
        what = "custom_tool_call_input" if self._kind == "custom_tool_call" else "function_call_arguments"
        return [{"type": f"response.{what}.delta", **self.place, "delta": text}]

    def close(self, status: str = "completed") -> list[Event]:
        """End the open item, if there is one.

        Args:
            status: of it: ``completed`` or ``incomplete``.
        """
        kind, self._kind = self._kind, ""
        if not kind:
            return []
        text = "".join(self.texts)
        events = _ends(kind, self.place, self.items[-1], text, self._entries)
        whole: dict[str, Any] = {"input" if kind == "custom_tool_call" else "arguments": text}
        if kind in {"message", "reasoning"}:
            whole = {"content": [_content(kind, text, self._entries)]}
            events.append(_part("done", self.place, whole["content"][0]))
        if kind == "reasoning" and self._cipher is not None:
            whole["encrypted_content"] = self._cipher.encrypt("reasoning", text)
        self.items[-1] = {**self.items[-1], "status": status, **whole}
        events.append({"type": "response.output_item.done", **_index(self.place), "item": self.items[-1]})
        return events

    @property
    def text(self) -> str:
        """The text of all messages so far."""
        parts = [part["text"] for item in self.items if item["type"] == "message" for part in item["content"]]
        return "".join(parts + self.texts if self._kind == "message" else parts)

    def _text_delta(self, text: str, logprobs: list[dict[str, Any]]) -> Event:
        delta = {"type": "response.output_text.delta", **self.place, "content_index": 0, "delta": text}
        return {**delta, "logprobs": logprobs}

    def _reasoning_delta(self, text: str) -> Event:
        return {"type": "response.reasoning_text.delta", **self.place, "content_index": 0, "delta": text}

    def _begin(self, kind: str, **fields: Any) -> list[Event]:
        events = self.close()
        name = item_id(_PREFIXES[kind], self._response_id, len(self.items))
        item = {"id": name, "type": kind, "status": "in_progress", **fields}
        self.items.append(item)
        self._kind, self.texts, self._entries = kind, [], []
        self.place = {"item_id": item["id"], "output_index": len(self.items) - 1}
        return [*events, {"type": "response.output_item.added", **_index(self.place), "item": item}]


def _part(what: str, place: dict[str, Any], part: dict[str, Any]) -> Event:
    return {"type": f"response.content_part.{what}", **place, "content_index": 0, "part": part}


def _index(place: dict[str, Any]) -> dict[str, Any]:
    return {"output_index": place["output_index"]}


def _content(kind: str, text: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": entries}


def _ends(
    kind: str, place: dict[str, Any], item: dict[str, Any], text: str, entries: list[dict[str, Any]]
) -> list[Event]:
    """The event with the whole text of an item."""
    if kind == "message":
        done = {"type": "response.output_text.done", **place, "content_index": 0, "text": text}
        return [{**done, "logprobs": entries}]
    if kind == "reasoning":
        return [{"type": "response.reasoning_text.done", **place, "content_index": 0, "text": text}]
    if kind == "function_call":
        done = {"type": "response.function_call_arguments.done", **place, "name": item["name"]}
        return [{**done, "arguments": text}]
    return [{"type": "response.custom_tool_call_input.done", **place, "input": text}]
