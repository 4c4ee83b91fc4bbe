"""Clients of the three APIs: they take an answer as their documents say, and send it back as history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic_core import from_json

from tests.anthropic.messages_harness import VERSION
from tests.app.scripted import MODEL

Item = dict[str, Any]
"""A message, an input item or a block, as an API has it."""


@dataclass
class Answer:
    """An answer as its client has it.

    Attributes:
        items: that are sent back.
        texts: of the model.
        thoughts: its reasoning.
        calls: id, name and argument text of each.
    """

    items: list[Item]
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, str]] = field(default_factory=list)


def _events(text: str) -> list[Item]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


class Chat:
    """Of chat completions."""

    path = "/v1/chat/completions"

    def body(self, history: Sequence[Item], tools: Sequence[Item], limit: int, choice: str) -> Item:
        body = {"model": MODEL, "messages": history, "max_tokens": limit}
        return body | ({"tools": tools, "tool_choice": choice} if tools else {})

    def user(self, text: str) -> Item:
        return {"role": "user", "content": text}

    def whole(self, response: Item) -> Answer:
        return self._answer(response["choices"][0]["message"])

    def streamed(self, text: str, left: int | None) -> Answer:
        """The answer of the first ``left`` events of a stream."""
        message: Item = {"role": "assistant", "content": None}
        calls: list[Item] = []
        for delta in (choice["delta"] for event in _events(text)[:left] for choice in event["choices"]):
            for key in ("content", "reasoning_content"):
                if delta.get(key) is not None:
                    message[key] = (message.get(key) or "") + delta[key]
            for part in delta.get("tool_calls") or ():
                if part["index"] == len(calls):
                    calls.append({"id": part["id"], "type": "function", "function": dict(part["function"])})
                else:
                    calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        if left is not None and not calls and message["content"] is None and "reasoning_content" not in message:
            return Answer([])
        return self._answer(message | ({"tool_calls": calls} if calls else {}))

    def results(self, answer: Answer) -> list[Item]:
        return [{"role": "tool", "tool_call_id": each[0], "content": f"result{place}"}
                for place, each in enumerate(answer.calls)]  # fmt: skip

    def _answer(self, message: Item) -> Answer:
        texts = [message[key] for key in ("content", "refusal") if message.get(key)]
        thoughts = [message["reasoning_content"]] if message.get("reasoning_content") else []
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        return Answer([message], texts, thoughts, calls)


class Responses:
    """Of Responses, which send the items of the output back."""

    path = "/v1/responses"

    def body(self, history: Sequence[Item], tools: Sequence[Item], limit: int, choice: str) -> Item:
        body = {"model": MODEL, "input": history, "max_output_tokens": limit}
        own = [{"type": "function", **tool["function"]} for tool in tools]
        return body | ({"tools": own, "tool_choice": choice} if tools else {})

    def user(self, text: str) -> Item:
        return {"role": "user", "content": text}

    def whole(self, response: Item) -> Answer:
        return self._answer(response["output"])

    def streamed(self, text: str, left: int | None) -> Answer:
        items: list[Item] = []
        for event in _events(text)[:left]:
            kind = event["type"]
            if kind == "response.output_item.added":
                items.append(event["item"])
            elif kind == "response.output_item.done":
                items[-1] = event["item"]
            elif kind == "response.content_part.added":
                items[-1]["content"] = [event["part"]]
            elif kind.endswith("text.delta"):
                items[-1]["content"][0]["text"] += event["delta"]
            elif kind.endswith("arguments.delta"):
                items[-1]["arguments"] += event["delta"]
        return self._answer(items)

    def results(self, answer: Answer) -> list[Item]:
        return [{"type": "function_call_output", "call_id": each[0], "output": f"result{place}"}
                for place, each in enumerate(answer.calls)]  # fmt: skip

    def _answer(self, items: list[Item]) -> Answer:
        said = [(item["type"], part["text"]) for item in items for part in item.get("content") or ()]
        return Answer(
            items,
            [text for kind, text in said if kind == "message"],
            [text for kind, text in said if kind == "reasoning"],
            [(item["call_id"], item["name"], item["arguments"]) for item in items if item["type"] == "function_call"],
        )


class Messages:
    """Of Messages, which read broken input as far as it goes, or send it back as text."""

    path = "/v1/messages"
    _DELTAS = ("text", "thinking", "signature", "partial_json")

    def __init__(self, *, unparsed: bool = False) -> None:
        self._unparsed = unparsed

    def body(self, history: Sequence[Item], tools: Sequence[Item], limit: int, choice: str) -> Item:
        body = {"model": MODEL, "messages": history, "max_tokens": limit}
        own = [{**tool["function"], "input_schema": tool["function"]["parameters"]} for tool in tools]
        own = [{key: value for key, value in tool.items() if key != "parameters"} for tool in own]
        chosen = {"required": "any"}.get(choice, choice)
        return body | ({"tools": own, "tool_choice": {"type": chosen}} if tools else {})

    def user(self, text: str) -> Item:
        return {"role": "user", "content": text}

    def whole(self, response: Item) -> Answer:
        return self._answer(response["content"])

    def streamed(self, text: str, left: int | None) -> Answer:
        blocks: list[Item] = []
        for event in _events(text)[:left]:
            if event["type"] == "content_block_start":
                blocks.append({**event["content_block"], "partial_json": ""})
            elif event["type"] == "content_block_delta":
                for key in self._DELTAS:
                    blocks[-1][key] = blocks[-1].get(key, "") + event["delta"].get(key, "")
        return self._answer([self._block(block) for block in blocks])

    def results(self, answer: Answer) -> list[Item]:
        blocks = [{"type": "tool_result", "tool_use_id": each[0], "content": f"result{place}"}
                for place, each in enumerate(answer.calls)]  # fmt: skip
        return [{"role": "user", "content": blocks}] if blocks else []

    def _block(self, block: Item) -> Item:
        kind, text = block["type"], block["partial_json"]
        if kind != "tool_use":
            return {key: block[key] for key in ("type", *{"text": ["text"]}.get(kind, ["thinking", "signature"]))}
        try:
            found = json.loads(text or "{}")
        except ValueError:
            found = {"__unparsedToolInput": {"raw": text}} if self._unparsed else _partial(text)
        return {key: block[key] for key in ("type", "id", "name")} | {"input": found}

    def _answer(self, blocks: list[Item]) -> Answer:
        calls = []
        for block in blocks:
            if block["type"] == "tool_use":
                raw = block["input"].get("__unparsedToolInput", {}).get("raw")
                calls.append((block["id"], block["name"], json.dumps(block["input"]) if raw is None else raw))
        return Answer(
            [{"role": "assistant", "content": blocks}] if blocks else [],
            [block["text"] for block in blocks if block["type"] == "text"],
            [block["thinking"] for block in blocks if block["type"] == "thinking"],
            calls,
        )


def _partial(text: str) -> Item:
    try:
        found = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


Client = Chat | Responses | Messages


def headers(client: Client) -> dict[str, str]:
    """Those that its API wants."""
    return VERSION if isinstance(client, Messages) else {}


def named(response: httpx.Response) -> list[str]:
    """What the response says that the request was served without."""
    return [each for each in response.headers.get("x-ignored-parameters", "").split(", ") if each]
