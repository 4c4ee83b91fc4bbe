"""Translates a Messages request to a chat request, and records the origin of each part for errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.api.anthropic.errors import NO_THREADS
from gateway.api.anthropic.messages.protocol import (
    Block,
    CountTokensRequest,
    InputMessage,
    MessagesRequest,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    parse_count_request,
    parse_messages_request,
)
from gateway.api.anthropic.messages.signatures import reasoning_of
from gateway.api.anthropic.messages.tools import MessagesTools, own_call_id
from gateway.api.openai.chat.messages import unread_text
from gateway.api.openai.chat.protocol import chat_request
from gateway.api.openai.generation_fields import MOST_STOPS, MOST_TOKENS
from gateway.api.openai.parameters.table import SHARED
from gateway.api.openai.request_json import MOST_CHARACTERS
from gateway.api.openai.translation import TranslatedRequest, Translation, function_name
from gateway.api.openai.validation import without_nulls
from gateway.text.bad_request import BadRequestError
from gateway.text.prompt.conversation import OpenCalls

_BILLING = "x-anthropic-billing-header:"  # changes with each request: prompts would not match the KV cache
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_TAKEN = SHARED - {"stop", "top_k"}
_MOST_USER = 512  # characters of the user's id that are logged
_FIELDS = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "reasoning_effort": "output_config.effort",
    "thinking_token_budget": "thinking.budget_tokens",
    "response_format.json_schema.schema": "output_config.format.schema",
    "response_format": "output_config.format",
    "tool_choice.function.name": "tool_choice.name",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "continue_final_message": "messages",
}
_OLD_FORM = {"response_format": "output_format", "response_format.json_schema.schema": "output_format.schema"}

_UNPARSED = "__unparsedToolInput"  # some clients send it in place of an input that was not JSON
_INVALID = "invalid_value"


@dataclass(slots=True)
class MessagesTurn(TranslatedRequest):
    """A Messages request with its translation to a chat request.

    Attributes:
        request: of the client; without what limits and shapes the answer where only its tokens are counted.
        tools: of the request.
    """

    request: CountTokensRequest
    tools: MessagesTools


def parse_turn(fields: dict[str, Any], betas: Sequence[str]) -> MessagesTurn:
    """Parse and translate a request body.

    Args:
        fields: of the request.
        betas: that it is served without.

    Raises:
        BadRequestError: naming the client's parameter at fault.
    """
    request = parse_messages_request(fields)
    data, left_out = _answer_fields(request)
    return _turn(request, data, [*left_out, *betas])


def parse_counted(fields: dict[str, Any], betas: Sequence[str]) -> MessagesTurn:
    """Parse and translate a request whose prompt is counted; see ``parse_turn``."""
    return _turn(parse_count_request(fields), {}, betas)


def _turn(request: CountTokensRequest, data: dict[str, Any], left_out: Sequence[str]) -> MessagesTurn:
    _check_whole(request)
    tools = MessagesTools()
    tools.add(request.tools)
    data |= tools.choice(request.tool_choice)
    conversation = ChatMessages([])
    _open(conversation, request)
    for index, message in enumerate(request.messages):
        conversation.add(message, f"messages[{index}]")
    data |= {"model": request.model, "messages": conversation.close()}
    if request.messages[-1].role == "assistant" and conversation.has_prefill(f"messages[{len(request.messages) - 1}]"):
        data["continue_final_message"] = True
    given = request.output_config.format
    data |= _form(request.output_format if given is None else given)
    if request.output_config.effort in _EFFORTS:
        data["reasoning_effort"] = request.output_config.effort
    extra = request.model_extra or {}
    data |= {name: value for name, value in extra.items() if name in _TAKEN}
    thinking = request.thinking
    if thinking is not None and thinking.type == "enabled" and thinking.budget_tokens is not None:
        data["thinking_token_budget"] = min(thinking.budget_tokens, MOST_TOKENS)
    fields = _FIELDS if request.output_format is None or given is not None else _FIELDS | _OLD_FORM
    parts = {**tools.parts, **conversation.parts}
    translation = Translation(conversation.origins, tools.paths, fields, parts)
    with translation.renaming():
        chat = chat_request(without_nulls(data))
    chat.limit_stops(MOST_STOPS)
    named = [*_unread(request), *conversation.left_out, *tools.left_out, *left_out]
    return MessagesTurn(chat, translation, tuple(dict.fromkeys(named)), request, tools)


def _check_whole(request: CountTokensRequest) -> None:
    """Reject a thread, because its later requests hold only new messages, too little for a model."""
    if request.thread is not None:
        message = (
            "'thread' is not supported because this gateway stores no conversations; send the whole "
            "conversation instead."
        )
        raise BadRequestError(message, "thread", NO_THREADS)


def _answer_fields(request: MessagesRequest) -> tuple[dict[str, Any], list[str]]:
    """The fields of the chat request that limit and shape the answer, and the names of what is left out."""
    data: dict[str, Any] = {
        "max_completion_tokens": min(request.max_tokens, MOST_TOKENS),
        "stream": request.stream,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop": request.stop_sequences or None,
    }
    user = request.metadata.get("user_id")
    if isinstance(user, str):
        data["user"] = user[:_MOST_USER]
    ids = {name: getattr(request, name) for name in ("user_profile_id", "workspace_id")}
    data["metadata"] = {name: value[:_MOST_USER] for name, value in ids.items() if value} or None
    if request.speed is not None:
        data["service_tier"] = "priority" if request.speed == "fast" else "default"
    left_out = ["speed"] * (request.speed not in (None, "standard", "fast"))
    left_out += ["service_tier"] * (request.service_tier not in (None, "auto", "standard_only"))
    return data, [*left_out, *(f"metadata.{key}" for key in request.metadata if key != "user_id")]


def _open(conversation: ChatMessages, request: CountTokensRequest) -> None:
    """Begin with the instructions, but for a first block that counts for billing alone."""
    if isinstance(request.system, str):
        conversation.instruct([request.system], "system")
        return
    blocks = request.system
    if blocks and blocks[0].text.startswith(_BILLING):
        conversation.left_out.append("system.x-anthropic-billing-header")
        blocks = blocks[1:]
    for block in blocks:
        conversation.note(block)
    conversation.instruct([block.text for block in blocks], "system")


def _form(output_config: dict[str, Any] | None) -> dict[str, Any]:
    """The form of the answer; a schema is always held to, as with Anthropic."""
    if output_config is None:
        return {}
    if output_config.get("type") != "json_schema":
        return {"response_format": output_config}
    schema = {"name": "output", "schema": output_config.get("schema"), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _unread(request: CountTokensRequest) -> list[str]:
    """The names of fields that are not read, outside of messages and tools."""
    names = [name for name in request.model_extra or () if name not in _TAKEN]
    for key, part in (("thinking", request.thinking), ("output_config", request.output_config)):
        names += [f"{key}.{name}" for name in (part.model_extra or () if part is not None else ())]
    effort = request.output_config.effort
    return names + ["output_config.effort"] * (effort is not None and effort not in _EFFORTS)


@dataclass(slots=True)
class ChatMessages:
    """Collects the messages of a chat request from turns of a Messages request.

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
    _calls: OpenCalls[str] = field(default_factory=OpenCalls)
    _lead: list[str] = field(default_factory=list)  # texts of the first system message
    _room: int = MOST_CHARACTERS  # characters left for reasoning that only signatures hold
    _unanswered: bool = False  # whether the last message has calls whose results may follow
    _waiting: list[tuple[list[str], str]] = field(default_factory=list)  # system turns, which follow the results

    def instruct(self, texts: Sequence[str], path: str) -> None:
        """Add texts as a system message; those before all other messages become one message.

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
        """Add the next turn.

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
        """End the conversation; returns the messages of the chat request."""
        self._say_waiting()
        if self._lead:
            self.messages[0]["content"] = "\n\n".join(self._lead)
        return self.messages

    def has_prefill(self, path: str) -> bool:
        """Tell whether the answer continues the last turn, the assistant's; an empty one is removed.

        Raises:
            BadRequestError: the turn has calls, or reasoning and no text.
        """
        last = self.messages[-1]
        if "tool_calls" in last:
            message = f"'{path}' calls tools: the next user message must have their 'tool_result' blocks."
            raise BadRequestError(message, path, _INVALID)
        if not last["content"] and "reasoning_content" not in last:
            self.messages.pop()
            self.origins.pop()
            before = self.messages[-1]["role"] if self.messages else None  # a turn of the assistant may be in pieces
            return before == "assistant" and self.has_prefill(self.origins[-1])
        if not last["content"]:
            message = f"'{path}' has no text that the model could continue; the last message must have the role 'user'."
            raise BadRequestError(message, path, _INVALID)
        return True

    def note(self, block: Block) -> None:
        """Note the names of a block's unread fields."""
        if block.cache_control is not None:
            self.left_out.append("cache_control")
        self.left_out += [
            f"{block.type[:64]}.{key}" for key, value in (block.model_extra or {}).items()
            if value is not None and block.branch != "other"
        ]  # fmt: skip

    def _add_user(self, blocks: Sequence[Block], path: str) -> None:
        """Results go before all else; system turns that stood between them and their calls come behind them."""
        texts: list[tuple[str, str]] = []
        for place, block in enumerate(blocks):
            here = f"{path}.content[{place}]"
            if isinstance(block, ToolResultBlock):
                self._add_result(block, here)
            elif isinstance(block, ToolUseBlock | ThinkingBlock):
                raise _misplaced(block, "assistant", here)
            else:
                texts.append((self._text(block, here), here))
        self._say_waiting()
        if any(text for text, _ in texts) or not any(isinstance(block, ToolResultBlock) for block in blocks):
            self._put("user", self._content(texts), path)

    def _add_assistant(self, blocks: Sequence[Block], path: str) -> None:
        texts: list[tuple[str, str]] = []
        thoughts: list[str] = []
        calls: list[dict[str, Any]] = []
        message = f"messages[{len(self.messages)}]"
        for place, block in enumerate(blocks):
            here = f"{path}.content[{place}]"
            if isinstance(block, ToolUseBlock):
                function = f"{message}.tool_calls[{len(calls)}].function"
                self.parts |= {function: here, f"{function}.arguments": f"{here}.input"}
                calls.append(self._call(block))
            elif isinstance(block, ThinkingBlock):
                self.parts.setdefault(f"{message}.reasoning_content", f"{here}.thinking")
                thoughts.append(block.thinking or self._encrypted(block))
            elif isinstance(block, ToolResultBlock):
                raise _misplaced(block, "user", here)
            else:
                texts.append((self._text(block, here), here))
        self._calls.add([(call["id"], path) for call in calls])
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        if any(thoughts):
            more["reasoning_content"] = "\n".join(filter(None, thoughts))
        self._put("assistant", self._content(texts), path, **more)
        self._unanswered = bool(calls)

    def _encrypted(self, block: ThinkingBlock) -> str:
        """The reasoning that a block's signature brings back: of all blocks no more than one string may have."""
        found = reasoning_of(block.signature, self._room)
        if found is None:
            self.left_out.append("thinking.signature")
            return ""
        self._room -= len(found)
        return found

    def _call(self, block: ToolUseBlock) -> dict[str, Any]:
        call_id, given = own_call_id(block.id), block.input or {}
        unparsed = given.get(_UNPARSED)
        raw = unparsed.get("raw") if isinstance(unparsed, dict) else None
        arguments = raw if isinstance(raw, str) else json.dumps(given, ensure_ascii=False)
        function = {"name": function_name(block.name), "arguments": arguments}
        return {"id": call_id, "type": "function", "function": function}

    def _add_result(self, block: ToolResultBlock, path: str) -> None:
        call_id = own_call_id(block.tool_use_id)
        if self._calls.bind(call_id) is None:
            param = f"{path}.tool_use_id"
            message = f"'{param}' must be the id of an earlier 'tool_use' block."
            if call_id in self._calls:
                message = f"The 'tool_use' block of '{param}' already has a 'tool_result'."
            raise BadRequestError(message, param, _INVALID)
        content = block.content or ""
        texts = [content] if isinstance(content, str) else [self._as_text(part) for part in content]
        if block.is_error:
            texts = [f"Error: {texts[0]}" if texts and texts[0] else "Error", *texts[1:]]
        self.parts[f"messages[{len(self.messages)}].content"] = f"{path}.content"
        self._put("tool", _parts(texts), path, tool_call_id=call_id)

    def _text(self, block: Block, path: str) -> str:
        """The text of a block outside of results; empty for one that is left out."""
        if block.type == "image":
            message = f"Images are not supported ('{path}'); this model only reads text."
            raise BadRequestError(message, path, "unsupported_content_part")
        if block.type in {"document", "search_result"}:
            return self._as_text(block)
        if isinstance(block, TextBlock):
            return block.text
        self.left_out.append(f"content.{block.type[:64]}")
        return ""

    def _as_text(self, block: Block) -> str:
        """Convert a content block to text; a block that cannot be read as text becomes a sentence that says so."""
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
        return unread_text(shown)

    def _say_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._unanswered = False
        for texts, path in waiting:
            self.instruct(texts, path)

    def _content(self, texts: Sequence[tuple[str, str]]) -> Any:
        """Content of the next message, of texts and the paths of their blocks; empty ones are left out."""
        found = [(text, here) for text, here in texts if text]
        for place, (_, here) in enumerate(found):
            self.parts[f"messages[{len(self.messages)}].content[{place}]"] = here
        return _parts([text for text, _ in found])

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
    message = f"A block of the type {block.type!r} is only allowed in messages with the role {role} ('{path}')."
    return BadRequestError(message, path, _INVALID)
