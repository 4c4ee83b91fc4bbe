"""Translates a Responses request to a chat request, and records the origin of each part for errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.api.openai.chat.messages import unread_text
from gateway.api.openai.chat.protocol import chat_request
from gateway.api.openai.conversations.contents import ConversationEnd
from gateway.api.openai.encryption import OwnerCipher
from gateway.api.openai.parameters.table import SHARED
from gateway.api.openai.request_json import MOST_CALLS
from gateway.api.openai.responses.input_items import (
    CompactionItem,
    ConfigurationUpdateItem,
    Content,
    CustomCallItem,
    FunctionCallItem,
    InputItem,
    InputTextPart,
    MessageItem,
    OtherItem,
    OutputItem,
    ReasoningItem,
    ReferenceItem,
    ToolsItem,
)
from gateway.api.openai.responses.previous import NOTHING, PreviousItems
from gateway.api.openai.responses.protocol import ResponsesRequest, as_sent, parse_responses_request
from gateway.api.openai.responses.stored import ResponseStore
from gateway.api.openai.responses.tools import ResponsesTools, chosen
from gateway.api.openai.state import CallerState
from gateway.api.openai.stored_items import ENCRYPTED, LOGPROBS, StoredItems, stored_items
from gateway.api.openai.translation import TranslatedRequest, Translation
from gateway.api.openai.validation import without_nulls
from gateway.text.bad_request import BadRequestError, printable
from gateway.text.prompt.conversation import OpenCalls

SUMMARY = "Summary of the conversation so far:"
"""The first line of the message that stands for a compaction."""

_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
_REASONING = ("rs_", "reasoning_")  # how ids of reasoning begin

_FIELDS = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "tool_choice.function.name": "tool_choice.name",
    "tool_choice.custom.name": "tool_choice.name",
    "tool_choice.allowed_tools": "tool_choice",
}
_SAME = ("model", "temperature", "top_p", "stream", "user", "safety_identifier", "prompt_cache_key")


@dataclass(slots=True)
class ResponsesTurn(TranslatedRequest):
    """A Responses request with its translation to a chat request.

    Attributes:
        request: of the client.
        tools: of the request.
        sent: its fields that the response repeats; see ``as_sent``.
        response_store: where the response is stored; None where it is not.
        items: of its own input as they are stored.
        conversation: where the items of the response are put behind the others; None without one.
        cipher: of the client, where encrypted reasoning is requested and the operator gave keys.
        conversed: all items that the model reads, those before the request first.
    """

    request: ResponsesRequest
    tools: ResponsesTools
    sent: dict[str, orjson.Fragment]
    response_store: ResponseStore | None = None
    items: StoredItems = field(default_factory=dict)
    conversation: ConversationEnd | None = None
    cipher: OwnerCipher | None = None
    conversed: Sequence[InputItem] = ()


def parse_turn(fields: dict[str, Any]) -> ResponsesTurn:
    """Parse and translate a request without a conversation before it and without storage.

    Raises:
        BadRequestError: naming the client's parameter at fault.
    """
    return translated(parse_responses_request(fields))


def translated(
    request: ResponsesRequest, before: PreviousItems = NOTHING, kept: CallerState | None = None
) -> ResponsesTurn:
    """Translate a Responses request to a chat request.

    Args:
        request: the client's request.
        before: the conversation before the request.
        kept: the client's stored state; None without storage.

    Raises:
        BadRequestError: naming the client's parameter at fault.
    """
    tools = ResponsesTools()
    tools.add(request.tools, "tools")
    cipher = kept.cipher if kept is not None else None
    conversation = _Conversation(tools, cipher, [])
    if request.instructions is not None:
        conversation.say("system", request.instructions, "instructions")
    earlier = before.items()
    given = [] if isinstance(request.input, str) else before.resolved(request.input, earlier)
    conversation.refer([*earlier, *given])
    placed = [*((item, before.path) for item in earlier), *((item, f"input[{at}]") for at, item in enumerate(given))]
    for item, path in placed:
        conversation.add(item, path)
    if isinstance(request.input, str):
        conversation.say("user", request.input, "input")
    if not conversation.messages:
        message = "Invalid value for 'input': must contain at least one message."
        raise BadRequestError(message, "input", "empty_array")
    fields = {**_FIELDS, "logprobs": "include" if LOGPROBS in request.include else "top_logprobs"}
    request, updated = _configured(request, placed, conversation.left_out)
    fields |= updated
    translation = Translation(conversation.origins, tools.paths, fields, {**tools.renamed, **conversation.renamed})
    data, left_out = _fields(request, cipher)
    store = kept.store if kept is not None and not request.prewarms else None  # prewarming stores nothing
    left_out += ["input.duplicate"] * _sends_again(request, given)
    left_out += ["store"] * (request.store is True and store is None)
    data |= {"messages": conversation.close()}
    if tools.functions:
        data |= {"tools": tools.functions, "parallel_tool_calls": request.parallel_tool_calls}
    choice = chosen(request.tool_choice, tools)
    if choice is not None:
        data["tool_choice"] = choice
    with translation.renaming():
        chat = chat_request(without_nulls(data))
    hosted = [f"tools.{kind}" for kind in tools.hosted]
    named = [*left_out, *conversation.left_out, *hosted, *tools.left_out]
    turn = ResponsesTurn(chat, translation, tuple(dict.fromkeys(named)), request, tools, as_sent(request))
    turn.cipher = cipher if ENCRYPTED in request.include else None
    turn.conversed = [*earlier, *given]
    if kept is not None and store is not None and request.store is not False:
        turn.response_store, turn.items = ResponseStore(store, kept.owner), _kept_items(request, given)
        if before.conversation is not None:
            turn.conversation = ConversationEnd(store, kept.owner, before.conversation.id)
    return turn


def _configured(
    request: ResponsesRequest, placed: Sequence[tuple[InputItem, str]], left_out: list[str]
) -> tuple[ResponsesRequest, dict[str, str]]:
    """Set what updates among the items say, the last of each setting; returns the paths of what is set, too."""
    reasoning, text, paths = request.reasoning, request.text, {}
    for item, path in placed:
        if not isinstance(item, ConfigurationUpdateItem):
            continue
        for name, part in (("reasoning", item.reasoning), ("text", item.text)):
            left_out += [f"input.configuration_update.{name}.{key}" for key in (part and part.model_extra) or ()]
        if item.reasoning is not None:
            reasoning = reasoning.model_copy(update={"effort": item.reasoning.effort})
            paths["reasoning_effort"] = f"{path}.reasoning.effort"
        if item.text is not None:
            text = text.model_copy(update={"format": item.text.format})
            paths |= dict.fromkeys(("response_format", "response_format.json_schema"), f"{path}.text.format")
    return request.model_copy(update={"reasoning": reasoning, "text": text}) if paths else request, paths


def _sends_again(request: ResponsesRequest, given: Sequence[InputItem]) -> bool:
    """Whether an item of the request became a reference, because the conversation has it already."""
    pairs = zip(given, request.input, strict=False)  # a string input has no items
    return any(isinstance(now, ReferenceItem) and now is not sent for now, sent in pairs)


def _kept_items(request: ResponsesRequest, given: Sequence[InputItem]) -> StoredItems:
    """The items of a request's own input as they are kept; references say nothing that is not there already."""
    if isinstance(request.input, str):
        return stored_items([{"role": "user", "content": request.input}])
    return stored_items(item.model_dump(exclude_unset=True) for item in given if not isinstance(item, ReferenceItem))


def _fields(request: ResponsesRequest, cipher: OwnerCipher | None) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of the chat request except conversation and tools, and the names of what is left out."""
    values = {name: getattr(request, name) for name in _SAME}
    extra = request.model_extra or {}
    data = {name: value for name, value in values.items() if value is not None}
    data |= {name: value for name, value in extra.items() if name in SHARED}
    left_out = request.unread()
    if request.max_output_tokens is not None:
        data["max_completion_tokens"] = request.max_output_tokens
    if request.metadata:
        data["metadata"] = request.metadata
    if request.service_tier in _TIERS:
        data["service_tier"] = request.service_tier
    if request.top_logprobs or LOGPROBS in request.include:
        data |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    served = {LOGPROBS} | ({ENCRYPTED} if cipher is not None else set())
    left_out += [f"include.{name}" for name in request.include if name not in served]
    if request.truncation not in (None, "disabled"):
        left_out.append("truncation")
    for name in ("text", "reasoning", "stream_options"):
        left_out += [f"{name}.{key}" for key in getattr(request, name).model_extra or ()]
    return data | _form(request) | _reasoning(request, left_out), left_out


def _form(request: ResponsesRequest) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if request.text.verbosity is not None:
        data["verbosity"] = request.text.verbosity
    given = request.text.format
    if given is not None and given.get("type") == "json_schema":
        schema = {key: value for key, value in given.items() if key != "type" and value is not None}
        data["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif given is not None:
        data["response_format"] = given
    return data


def _reasoning(request: ResponsesRequest, left_out: list[str]) -> dict[str, Any]:
    effort, summary = request.reasoning.effort, request.reasoning.summary
    if summary not in (None, "auto"):  # with auto a summary may be absent
        left_out.append("reasoning.summary")
    if effort in _EFFORTS:
        return {"reasoning_effort": effort}
    left_out += ["reasoning.effort"] * (effort is not None)
    return {}


@dataclass(slots=True)
class _Conversation:
    """Collects items as messages of a chat request, a run of reasoning, text and calls as one message.

    Attributes:
        tools: of the request; tools that come among the items are added.
        cipher: of the client; None where nothing can be decrypted.
        messages: of the chat request.
        origins: the path of the item that began each message.
        renamed: paths within messages that differ in the client's request.
        left_out: types of items and content parts that are not read.
    """

    tools: ResponsesTools
    cipher: OwnerCipher | None
    messages: list[dict[str, Any]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    _calls: OpenCalls[str] = field(default_factory=OpenCalls)
    _waiting: list[tuple[str, str]] = field(default_factory=list)  # ids and functions of calls without an output
    _given: set[str] = field(default_factory=set)
    _reasoning: list[tuple[str, str]] = field(default_factory=list)  # texts and paths
    _open: dict[str, Any] | None = None

    def put(self, role: str, content: Any, path: str, **more: Any) -> dict[str, Any]:
        """Add a message, which ends the assistant's before it; reasoning that nothing follows is one of its own."""
        if self._reasoning and role != "assistant":
            self._assistant(path)
        self._open = None
        message = {"role": role, "content": content, **more}
        self.messages.append(message)
        self.origins.append(path)
        return message

    def close(self) -> list[dict[str, Any]]:
        """End the conversation; returns its messages."""
        for message in self.messages:
            if "reasoning_content" in message:  # joined once: copies for each further text would take minutes
                message["reasoning_content"] = "\n".join(message["reasoning_content"])
        return self.messages

    def say(self, role: str, text: str, path: str) -> None:
        """Add a message whose whole text stands at a path."""
        self.renamed[f"messages[{len(self.messages)}].content"] = path
        self.put(role, text, path)

    def refer(self, items: Sequence[InputItem]) -> None:
        """Note the ids of items that come whole: to refer to them says nothing new."""
        self._given = {item.id for item in items if isinstance(item.id, str) and not isinstance(item, ReferenceItem)}

    def add(self, item: InputItem, path: str) -> None:
        """Take the next item.

        Raises:
            BadRequestError: for an output without its call, and for a reference to an unknown item.
        """
        if isinstance(item, MessageItem):
            self._message(item, path)
        elif isinstance(item, FunctionCallItem):
            self._call(item, "function", {"arguments": item.arguments}, path)
        elif isinstance(item, CustomCallItem):
            self._call(item, "custom", {"input": item.input}, path)
        elif isinstance(item, ReasoningItem):
            text, unread = item.text(self.cipher)
            self._reasoning += [(text, path)] * bool(text)
            self.left_out += ["input.reasoning.encrypted_content"] * unread
        elif isinstance(item, OutputItem):
            call_id = item.call_id or self._unnamed(item, path)
            self._bind(call_id, path)
            self._output(call_id, item.output, path)
        elif isinstance(item, CompactionItem):
            self._compaction(item, path)
        elif isinstance(item, ToolsItem):
            self.tools.add(item.tools, f"{path}.tools", once=True)
        elif isinstance(item, ReferenceItem):
            self._reference(item, path)
        else:
            self._other(item, path)

    def _message(self, item: MessageItem, path: str) -> None:
        parts = _parts(item.content)
        if item.role != "assistant":
            self.put(item.role, parts, path)
            return
        if self._open is not None and self._open["content"] is not None and "tool_calls" not in self._open:
            self._open = None  # two successive messages stay separate
        message = self._assistant(path)
        self.renamed.setdefault(f"messages[{len(self.messages) - 1}].content", f"{path}.content")
        before = message["content"]
        message["content"] = parts if before is None else [*_as_list(before), *_as_list(parts)]

    def _assistant(self, path: str) -> dict[str, Any]:
        """The assistant's message that goes on, or a new one, with the reasoning that came before."""
        reasoning, self._reasoning = self._reasoning, []
        if self._open is None:
            self._open = self.put("assistant", None, path)
        if reasoning:
            self.renamed.setdefault(f"messages[{len(self.messages) - 1}].reasoning_content", reasoning[0][1])
            self._open.setdefault("reasoning_content", []).extend(text for text, _ in reasoning)
        return self._open

    def _call(self, item: FunctionCallItem | CustomCallItem, kind: str, given: dict[str, str], path: str) -> None:
        calls = self._assistant(path).setdefault("tool_calls", [])
        if len(calls) == MOST_CALLS:
            message = f"Invalid value for '{path}': one turn of the model may have at most {MOST_CALLS} tool calls."
            raise BadRequestError(message, path, "array_above_max_length")
        here = f"messages[{len(self.messages) - 1}].tool_calls[{len(calls)}]"
        self.renamed |= {f"{here}.{kind}": path, f"{here}.function": path}
        self.renamed |= {f"{here}.function.arguments": f"{path}.{key}" for key in given}
        name = self.tools.function_of(item.name, item.namespace)
        calls.append({"id": item.call_id, "type": kind, kind: {"name": name, **given}})
        self._calls.add([(item.call_id, path)])
        self._waiting.append((item.call_id, name))

    def _unnamed(self, item: OutputItem, path: str) -> str:
        """Find the call of an output without a call id: the first that has no output, of the function that it names."""
        name = None if item.name is None else self.tools.function_of(item.name, item.namespace)
        found = next((call_id for call_id, called in self._waiting if name in (None, called)), None)
        if found is None:
            message = f"No tool call found for the output of {path}: it has no 'call_id', and every call has an output."
            raise BadRequestError(message, f"{path}.call_id", "invalid_value")
        return found

    def _bind(self, call_id: str, path: str) -> None:
        """Give an output to its call."""
        if self._calls.bind(call_id) is None:
            message = f"No tool call found for the output of {path}: 'call_id' must be the id of an earlier call."
            if call_id in self._calls:
                message = f"The tool call of {path} already has an output."
            raise BadRequestError(message, f"{path}.call_id", "invalid_value")
        del self._waiting[next(at for at, (waits, _) in enumerate(self._waiting) if waits == call_id)]

    def _output(self, call_id: str, output: Any, path: str) -> None:
        self.renamed[f"messages[{len(self.messages)}].content"] = f"{path}.output"
        self.put("tool", self._as_text(output), path, tool_call_id=call_id)

    def _as_text(self, output: Any) -> Any:
        """Convert a tool's output to text; a part that cannot be read as text becomes a sentence that says so."""
        if not isinstance(output, list):
            return output if isinstance(output, str) else "" if output is None else json.dumps(output)
        parts = []
        for part in output:
            text = part.get("text")
            if not isinstance(text, str):
                shown = str(part.get("type"))[:64]
                self.left_out.append(f"input.{shown}")
                text = unread_text(shown)
            parts.append({"type": "text", "text": text})
        return parts or ""

    def _compaction(self, item: CompactionItem, path: str) -> None:
        """Add the summary of a compaction as a message of the assistant, because its words are the model's."""
        summary = item.text(self.cipher)
        if summary is None:
            self.left_out.append("input.compaction")
        else:
            self.put("assistant", f"{SUMMARY}\n\n{summary}", path)

    def _reference(self, item: ReferenceItem, path: str) -> None:
        if item.id in self._given:
            return
        if not item.id.startswith(_REASONING):
            shown = printable(item.id)
            message = f"Item with id {shown!r} not found: send the item itself."
            raise BadRequestError(message, f"{path}.id", "item_not_found")
        self.left_out.append("input.item_reference")

    def _other(self, item: OtherItem | ConfigurationUpdateItem, path: str) -> None:
        if isinstance(item, ConfigurationUpdateItem):
            return  # it says nothing in the conversation: see _configured
        if item.type.endswith("_output") and isinstance(item.call_id, str) and item.call_id in self._calls:
            self._bind(item.call_id, path)
            self._output(item.call_id, item.output if isinstance(item.output, str) else None, path)
        else:
            self.left_out.append(f"input.{item.type[:64]}")


def _parts(content: Content | None) -> Any:
    """Content as chat messages have it: a string, or its parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [
        {"type": "text", "text": part.text if isinstance(part, InputTextPart) else part.refusal} for part in content
    ]
    return parts or ""


def _as_list(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
