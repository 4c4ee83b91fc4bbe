"""The messages of a chat request, made of turns whose content is blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.anthropic.messages.blocks import (
    Block,
    InputMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from gateway.anthropic.messages.call_ids import own
from gateway.anthropic.messages.signatures import reasoning_of
from gateway.anthropic.messages.tools import function_name
from gateway.bad_request import BadRequestError
from gateway.openai.json_text import MOST_CHARACTERS

_UNPARSED = "__unparsedToolInput"  # in place of an input that was no JSON, by some clients
_INVALID = "invalid_value"


@dataclass(slots=True)
class Conversation:
    """The messages of a chat request as turns come.

    Attributes:
        messages: of the chat request.
        origins: the path of the turn that each message was made of.
        parts: paths within messages that differ in the client's request.
        left_out: types of blocks and names of fields that are not read.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    _calls: set[str] = field(default_factory=set)
    _lead: list[str] = field(default_factory=list)  # of the first message, which is a system's, joined at the end
    _room: int = MOST_CHARACTERS  # of reasoning that only signatures have
    _unanswered: bool = False  # whether the last message has calls whose results may follow
    _waiting: list[tuple[list[str], str]] = field(default_factory=list)  # system turns that results go before

    def instruct(self, texts: Sequence[str], path: str) -> None:
        """Say texts as system message; those before all other messages are one.

        Args:
            texts: paragraphs of it.
            path: of the texts.
        """
        paragraphs = [text for text in texts if text]
        if not paragraphs:
            return
        if not self.messages:
            self._lead = paragraphs
        elif len(self.messages) == 1 and self._lead:
            self._lead += paragraphs
            return
        self.parts[f"messages[{len(self.messages)}].content"] = path
        self._put("system", "\n\n".join(paragraphs), path)

    def add(self, message: InputMessage, path: str) -> None:
        """Take the next turn.

        Raises:
            BadRequestError: for blocks that cannot be where they are, results without their call, and images.
        """
        self.left_out += [f"messages.{key}" for key in message.model_extra or ()]
        blocks = message.blocks
        for block in blocks:
            self.note(block)
        if message.role == "system":
            texts = [self._text(block, f"{path}.content[{place}]") for place, block in enumerate(blocks)]
            if self._unanswered:
                self._waiting.append((texts, path))
            else:
                self.instruct(texts, path)
        elif message.role == "user":
            self._add_user(blocks, path)
        else:
            self._say_waiting()
            self._add_assistant(blocks, path)

    def close(self) -> list[dict[str, Any]]:
        """End the conversation; returns its messages."""
        self._say_waiting()
        if self._lead:
            self.messages[0]["content"] = "\n\n".join(self._lead)
        return self.messages

    def check_prefill(self, path: str) -> None:
        """Refuse a last turn of the assistant that an answer cannot go on with.

        Raises:
            BadRequestError: it has calls, or no text.
        """
        last = self.messages[-1]
        if "tool_calls" in last:
            message = f"'{path}' calls tools: their 'tool_result' blocks must follow it in a turn of the user."
            raise BadRequestError(message, path, _INVALID)
        if not last["content"]:
            message = f"'{path}' has no text that the answer could go on with: the last turn must be the user's."
            raise BadRequestError(message, path, _INVALID)

    def note(self, block: Block) -> None:
        """Name the fields of a block that are not read."""
        if block.cache_control is not None:
            self.left_out.append("cache_control")
        self.left_out += [
            f"{block.type[:64]}.{key}" for key, value in (block.model_extra or {}).items()
            if value is not None and block.branch != "other"
        ]  # fmt: skip

    def _add_user(self, blocks: Sequence[Block], path: str) -> None:
        """Results go before all else; system turns that stood between them and their calls come behind them."""
        texts = []
        for place, block in enumerate(blocks):
            here = f"{path}.content[{place}]"
            if isinstance(block, ToolResultBlock):
                self._add_result(block, here)
            elif isinstance(block, ToolUseBlock | ThinkingBlock):
                raise _misplaced(block, "assistant", here)
            else:
                texts.append(self._text(block, here))
        self._say_waiting()
        texts = [text for text in texts if text]
        if texts or not any(isinstance(block, ToolResultBlock) for block in blocks):
            self._put("user", _parts(texts), path)

    def _add_assistant(self, blocks: Sequence[Block], path: str) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[dict[str, Any]] = []
        for place, block in enumerate(blocks):
            here = f"{path}.content[{place}]"
            if isinstance(block, ToolUseBlock):
                self.parts[f"messages[{len(self.messages)}].tool_calls[{len(calls)}].function"] = here
                calls.append(self._call(block))
            elif isinstance(block, ThinkingBlock):
                thoughts.append(block.thinking or self._sealed(block))
            elif isinstance(block, ToolResultBlock):
                raise _misplaced(block, "user", here)
            else:
                texts.append(self._text(block, here))
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        if any(thoughts):
            more["reasoning_content"] = "\n".join(filter(None, thoughts))
        self._put("assistant", _parts([text for text in texts if text]), path, **more)
        self._unanswered = bool(calls)

    def _sealed(self, block: ThinkingBlock) -> str:
        """The reasoning that a block's signature brings back: of all blocks no more than one string may have."""
        found = reasoning_of(block.signature, self._room)
        if found is None:
            self.left_out.append("thinking.signature")
            return ""
        self._room -= len(found)
        return found

    def _call(self, block: ToolUseBlock) -> dict[str, Any]:
        call_id, given = own(block.id), block.input or {}
        self._calls.add(call_id)
        unparsed = given.get(_UNPARSED)
        if isinstance(unparsed, dict) and isinstance(unparsed.get("raw"), str):
            given = {"arguments": unparsed["raw"]}
        function = {"name": function_name(block.name), "arguments": json.dumps(given, ensure_ascii=False)}
        return {"id": call_id, "type": "function", "function": function}

    def _add_result(self, block: ToolResultBlock, path: str) -> None:
        call_id = own(block.tool_use_id)
        if call_id not in self._calls:
            param = f"{path}.tool_use_id"
            raise BadRequestError(f"'{param}' must be the id of an earlier 'tool_use' block.", param, _INVALID)
        content = block.content or ""
        texts = [content] if isinstance(content, str) else [self._readable(part) for part in content]
        if block.is_error:
            texts = [f"Error: {texts[0]}" if texts and texts[0] else "Error", *texts[1:]]
        self.parts[f"messages[{len(self.messages)}].content"] = f"{path}.content"
        self._put("tool", _parts(texts), path, tool_call_id=call_id)

    def _text(self, block: Block, path: str) -> str:
        """The text of a block outside of results; empty for one that is left out."""
        if block.type == "image":
            message = f"Images are not supported: this model reads text only ('{path}')."
            raise BadRequestError(message, path, "unsupported_content_part")
        if block.type in {"document", "search_result"}:
            return self._readable(block)
        if isinstance(block, TextBlock):
            return block.text
        self.left_out.append(f"content.{block.type[:64]}")
        return ""

    def _readable(self, block: Block) -> str:
        """What a block says as text: a sentence stands for what is none."""
        if isinstance(block, TextBlock):
            self.note(block)
            return block.text
        given = block.model_extra or {}
        if block.type == "tool_reference" and isinstance(given.get("tool_name"), str):
            return f"[The tool {given['tool_name']} can be called.]"
        source = given.get("source")
        if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
            return _titled(given, [source["data"]])
        parts = source.get("content") if isinstance(source, dict) else given.get("content")
        texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        found = [text for text in texts if isinstance(text, str)]
        if found:
            return _titled(given, found)
        shown = block.type[:64]
        self.left_out.append(f"content.{shown}")
        what = "An image" if shown == "image" else f"A part of the type {shown}"
        return f"[{what} was left out: this model reads text only.]"

    def _say_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._unanswered = False
        for texts, path in waiting:
            self.instruct(texts, path)

    def _put(self, role: str, content: Any, path: str, **more: Any) -> None:
        self.messages.append({"role": role, "content": content, **more})
        self.origins.append(path)


def _parts(texts: Sequence[str]) -> Any:
    """Content as chat messages have it: a string, or its parts."""
    if len(texts) > 1:
        return [{"type": "text", "text": text} for text in texts]
    return texts[0] if texts else ""


def _titled(given: dict[str, Any], texts: Sequence[str]) -> str:
    title = given.get("title")
    return "\n".join([title, *texts] if isinstance(title, str) and title else texts)


def _misplaced(block: Block, role: str, path: str) -> BadRequestError:
    message = f"A block of the type {block.type!r} can only be in a turn of the {role} ('{path}')."
    return BadRequestError(message, path, _INVALID)
