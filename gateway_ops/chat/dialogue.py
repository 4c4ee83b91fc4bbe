"""The messages of a conversation, and the request for each turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway_ops.chat.streamed_answer import StreamedReply

_OWN = frozenset({"messages", "model", "stream", "stream_options", "tools", "n", "logprobs"})


class DialogueError(ValueError):
    """An unusable file or parameter; the message is a sentence for the user."""


@dataclass(slots=True)
class Dialogue:
    """A conversation.

    Attributes:
        model: the model.
        system: the system prompt; empty without one.
        tools: OpenAI's definitions of functions.
        parameters: further parameters of every request.
        logprobs: whether requests ask for log-probs.
        messages: the messages, without the system prompt.
    """

    model: str
    system: str = ""
    tools: list[Any] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    logprobs: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)

    def body(self) -> dict[str, Any]:
        """Make the request for the next answer."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        body: dict[str, Any] = {"model": self.model, "messages": [*system, *self.messages], **self.parameters}
        if self.tools:
            body["tools"] = self.tools
        if self.logprobs:
            body["logprobs"] = True
        return body

    def add_question(self, text: str) -> None:
        """Add a user message."""
        self.messages.append({"role": "user", "content": _encodable(text)})

    def add_answer(self, answer: StreamedReply) -> None:
        """Add an answer without its reasoning, which models do not get again."""
        message: dict[str, Any] = {"role": "assistant", "content": _encodable(answer.text)}
        if answer.calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = json.loads(_encodable(json.dumps(answer.calls, ensure_ascii=False)))
        self.messages.append(message)

    def take_back(self) -> str:
        """Remove the user's last message and all after it; its text, or empty where there is no message."""
        while self.messages:
            last = self.messages.pop()
            if last["role"] == "user":
                return str(last["content"])
        return ""

    def give(self, call: Mapping[str, Any], result: str) -> None:
        """Add the result of a call."""
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": _encodable(result)})

    def save(self, path: Path) -> None:
        """Write the conversation as the body of a request.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(self.body(), indent=2, ensure_ascii=False) + "\n")


def read_tools(path: Path) -> list[Any]:
    """Read the tools of a file: a list of OpenAI's definitions, or an object with the list as ``tools``.

    Raises:
        DialogueError: the file has no tools.
    """
    try:
        read = json.loads(path.read_bytes())
    except OSError as error:
        raise DialogueError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise DialogueError(f"{path} is not JSON: {error}.") from None
    tools = read.get("tools") if isinstance(read, dict) else read
    if not isinstance(tools, list) or not tools:
        raise DialogueError(f"{path} is not a list of tools as in OpenAI's requests.")
    for number, tool in enumerate(tools, start=1):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            form = '{"type": "function", "function": {"name": ..., "parameters": ...}}'
            raise DialogueError(f"Tool {number} of {path} is not a function; the form is {form}.")
    return tools


def read_parameters(words: list[str]) -> dict[str, Any]:
    """Read request parameters ``NAME=VALUE``, where a value is JSON or else text.

    Raises:
        DialogueError: a parameter is malformed, or cannot be set.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise DialogueError(f"{word!r} is not a parameter: write NAME=VALUE, such as temperature=0.")
        if name in _OWN:
            raise DialogueError(f"{name} cannot be set here: the conversation sets it.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _encodable(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text.encode(errors="replace").decode()
