"""Converts a conversation to the form that one chat template takes, without losing any of it.

What would be lost is rejected by name.

Calls, results and names that the template has no place for are text of their messages, in the plain form that
docs/reference/tools.md describes to users. Calls are written there as guided ones are answered
(``families.call_schema``), so that a model without a call format of its own sees its earlier calls as it wrote them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.text.bad_request import BadRequestError
from gateway.text.prompt.conversation import PARAGRAPH, Turn, joined, merged, turns_of


class TemplateError(BadRequestError):
    """A chat template that is missing, does not compile or does not render these messages.

    Attributes:
        by_author: whether the message is the template author's (``raise_exception``), so that the request is at fault;
            False when template and request do not fit for another reason.
    """

    def __init__(self, message: str, *, by_author: bool = False, detail: str = "", param: str = "messages") -> None:
        super().__init__(message, param, "invalid_value", detail=detail)
        self.by_author = by_author


REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Keys of a message under which templates look for reasoning."""


REASONING_PART = "part"
"""In place of a key: reasoning is a content part ``{"type": "thinking", "thinking": ...}``, as Ministral 3 has it."""


@dataclass(frozen=True, slots=True)
class TemplateAbilities:
    """The abilities of one template, with definitions of tools or without; ``probing`` finds them.

    Roles are those of messages: system, user, assistant, tool. The defaults fit most templates.

    Attributes:
        developer: whether the role developer means something to it; elsewhere such messages are system messages.
        several_systems: whether it shows each of several system messages at the beginning; elsewhere they are one.
        late_systems: whether it shows a system message after others; elsewhere it goes to the beginning.
        system_in_question: whether a system message is a paragraph of the first user message, because the template
            rejects it.
        joins: roles of which it rejects one message behind another, so that they are one; ``tool`` stands for a user
            message behind a result.
        empty_turns: whether it takes a message of the assistant that says nothing; elsewhere there is none.
        system_in_calls: whether it shows the system message when a result comes last; elsewhere, as with the first
            Mistral models, it is a paragraph of the last user message then.
        hides_system: whether it leaves out every system message without a word.
        system_alone: whether it shows a system message in a conversation without a user message; otherwise the
            message gets the role of the user there.
        names: roles whose messages may have a ``name`` because it is shown.
        reads_parts: roles whose content it also reads as a list of text parts.
        needs_parts: roles whose content it reads as nothing else.
        calls: whether it shows a call and its result; elsewhere both are in plain form.
        open_calls: whether it shows calls without results, wherever they stand; elsewhere these are in plain form.
        arguments: whether arguments are an object or JSON text.
        text_arguments: whether arguments that no object can hold may be text; elsewhere they are the value of the one
            key ``arguments``.
        short_ids: whether ids of calls must have nine letters and digits.
        null_content: whether the content of a message with calls and without text is null instead of empty.
        result_names: whether a result has the name of its tool; some templates need it, others reject it.
        several_calls: whether several calls stay together in one message, come one by one, or are in plain form.
        text_with_calls: whether text stays in the message of the calls, is a message of its own before it, goes into
            the message before, or is in plain form with them.
        plain_results: role of the message that holds results in plain form.
        reasoning: the key of a message's reasoning, or ``REASONING_PART``; None: reasoning has no place.
        null_reasoning: whether a message without reasoning needs its keys nevertheless, as null.
        definitions: whether it shows the definitions that schemas of tools refer to.
    """

    developer: bool = False
    several_systems: bool = True
    late_systems: bool = True
    system_in_question: bool = False
    joins: frozenset[str] = frozenset()
    empty_turns: bool = True
    system_in_calls: bool = True
    hides_system: bool = False
    system_alone: bool = True
    names: frozenset[str] = frozenset()
    reads_parts: frozenset[str] = frozenset()
    needs_parts: frozenset[str] = frozenset()
    calls: bool = True
    open_calls: bool = True
    arguments: Literal["object", "text"] = "object"
    text_arguments: bool = True
    short_ids: bool = False
    null_content: bool = False
    result_names: bool = True
    several_calls: Literal["together", "separate", "plain"] = "together"
    text_with_calls: Literal["beside", "before", "previous", "plain"] = "beside"
    plain_results: Literal["tool", "user"] = "tool"
    reasoning: str | None = None
    null_reasoning: bool = False
    definitions: bool = True


_SHORT = 9
# Escapes that may stand for a NUL or a lone surrogate, which must not come out of the text again.
_UNTEXT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SYSTEM = frozenset({"system", "developer"})
_SIMPLE_ROLES = frozenset({"user", "assistant"})
_SIMPLE_KEYS = 2  # role and content


def history(
    messages: Sequence[Mapping[str, Any]], abilities: TemplateAbilities, changed: list[str] | None = None
) -> Sequence[Mapping[str, Any]]:
    """Convert messages to the form that a template takes.

    Results stand behind their calls, in the order of the calls. Calls, results and names that the template does not
    show are text of their messages, in plain form; several text parts are lines, where it does not read parts itself.
    Reasoning that has no place is left out, as the makers of models do.

    Args:
        messages: role, content as text and, where it has several, its ``parts``; arguments of calls as the model wrote
            them, JSON text as a rule; the assistant's reasoning under ``reasoning``.
        abilities: of the template.
        changed: takes the paths of texts that are shown in another message or role than their own.

    Raises:
        TemplateError: for a system message, naming it, when the template leaves out all of them.
    """
    if _is_simple(messages, abilities):
        return messages
    if abilities.hides_system:
        _reject_systems(messages)
    changed = [] if changed is None else changed
    conversation = _Conversation(abilities, changed)
    for turn in _turns(messages, abilities, changed):
        conversation.add(turn)
    if abilities.system_in_calls or conversation.messages[-1]["role"] == "user":
        return conversation.messages
    return _system_in_question(conversation.messages)


def _turns(messages: Sequence[Mapping[str, Any]], abilities: TemplateAbilities, changed: list[str]) -> list[Turn]:
    """The turns of a conversation as far as the template takes them."""
    turns = turns_of(messages)
    if not (abilities.calls and abilities.open_calls):
        for turn in turns:
            if turn.message.get("tool_calls") and not turn.results:
                turn.message = _with_calls_as_text(turn.message)
    if not abilities.empty_turns:
        turns = [turn for turn in turns if not _says_nothing(turn.message, abilities)]
    if not abilities.system_alone and not _has_user(messages):
        for turn in turns:
            if turn.message["role"] in _SYSTEM:
                turn.message = {**turn.message, "role": "user"}
                changed.append(f"messages[{turn.place}].role")
    if abilities.system_in_question:
        turns = _systems_in_question(turns, changed)
    elif not abilities.late_systems:
        turns.sort(key=lambda turn: turn.message["role"] not in _SYSTEM)
    return joined(turns, abilities.joins, changed) if abilities.joins else turns


def _has_user(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(message["role"] == "user" for message in messages)


def short_id(call_id: str) -> str:
    """Return an id of nine letters and digits as it is, and for any other id one that always replaces it."""
    if len(call_id) == _SHORT and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:_SHORT]


def _is_simple(messages: Sequence[Mapping[str, Any]], abilities: TemplateAbilities) -> bool:
    """Whether all stays as it is: texts of users and assistants only, after a system message at most."""
    first = messages[0]
    if first["role"] == "system" and len(first) == _SIMPLE_KEYS:
        if abilities.hides_system or abilities.system_in_question or not abilities.system_in_calls:
            return False
        if not (abilities.system_alone or _has_user(messages)):
            return False
        messages = messages[1:]
    for message in messages:  # no generator, which takes a frame for each
        if len(message) != _SIMPLE_KEYS or message["role"] not in _SIMPLE_ROLES:
            return False
    return abilities.empty_turns and not (abilities.needs_parts or abilities.null_reasoning or abilities.joins)


def _says_nothing(message: Mapping[str, Any], abilities: TemplateAbilities) -> bool:
    """Whether a message is an empty one of the assistant for the template."""
    thought = abilities.reasoning == REASONING_PART and message.get("reasoning")
    return message["role"] == "assistant" and not (message["content"] or message.get("tool_calls") or thought)


def _is_native(message: Mapping[str, Any], abilities: TemplateAbilities) -> bool:
    """Whether the template shows the calls of a message."""
    return (
        abilities.calls
        and (abilities.several_calls != "plain" or len(message["tool_calls"]) == 1)
        and (abilities.text_with_calls in {"beside", "before"} or not message["content"].strip())
    )


def _reject_systems(messages: Sequence[Mapping[str, Any]]) -> None:
    for index, message in enumerate(messages):
        if message["role"] in _SYSTEM and message["content"].strip():
            words = f"The model's chat template leaves out {message['role']} messages."
            raise TemplateError(words, by_author=True, param=f"messages[{index}].role")


def _system_in_question(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, the system message as the first paragraph of the last question."""
    asked = next((place for place in reversed(range(len(messages))) if messages[place]["role"] == "user"), 0)
    if messages[0]["role"] not in _SYSTEM or not asked:
        return messages
    content = _joined(messages[0]["content"], messages[asked]["content"])
    return [*messages[1:asked], {**messages[asked], "content": content}, *messages[asked + 1 :]]


def _systems_in_question(turns: Sequence[Turn], changed: list[str]) -> list[Turn]:
    """The turns, with system messages as the first paragraphs of the first user message."""
    systems = [turn for turn in turns if turn.message["role"] in _SYSTEM]
    found = [turn for turn in turns if turn.message["role"] not in _SYSTEM]
    for turn in found if systems else ():
        if turn.message["role"] == "user":
            first: Mapping[str, Any] = {"role": "user", "content": ""}
            turn.message = functools.reduce(merged, (each.message for each in [*systems, turn]), first)
            changed += [f"messages[{each.place}].role" for each in systems]
            return found
    return list(turns)


class _Conversation:
    """Messages as a template takes them, one after the other."""

    def __init__(self, abilities: TemplateAbilities, changed: list[str]) -> None:
        self.messages: list[dict[str, Any]] = []
        self._abilities = abilities
        self._changed = changed
        self._leading = True  # nothing but system messages so far
        self._open_results = False  # the last message is a user's that holds results

    def add(self, turn: Turn) -> None:
        """Take the next turn."""
        message = turn.message
        role = message["role"]
        if message.get("tool_calls"):
            self._add_calls(turn)
        elif role == "tool":
            self._add_result(turn, native=self._abilities.calls)
        else:
            found = self._plain_message(message)
            joined = self._leading and self.messages and not self._abilities.several_systems and role in _SYSTEM
            if joined or (role == "user" and self._open_results):
                self._append_to_last(found["content"])
            else:
                self._put(found)
            self._open_results = False
        self._leading = self._leading and role in _SYSTEM

    def _put(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self._open_results = False

    def _append_to_last(self, content: Any) -> None:
        self.messages[-1]["content"] = _joined(self.messages[-1]["content"], content)

    def _plain_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message without its calls."""
        role = message["role"]
        role = "system" if role == "developer" and not self._abilities.developer else role
        found: dict[str, Any] = {"role": role}
        found["content"] = self._content(role, self._named_texts(found, message))
        if role == "assistant":
            self._reason(found, message)
        return found

    def _named_texts(self, found: dict[str, Any], message: Mapping[str, Any]) -> list[str]:
        """The texts of a message, the name of its author in the first where ``found`` cannot have it."""
        texts = list(message.get("parts") or [message["content"]])
        name = message.get("name")
        if name and _kind(found["role"]) in self._abilities.names:
            found["name"] = name
        elif name:
            texts[0] = _named_text(name, texts[0])
        return texts

    def _content(self, role: str, texts: Sequence[str]) -> str | list[dict[str, str]]:
        kind = _kind(role)
        if kind in self._abilities.needs_parts or (len(texts) > 1 and kind in self._abilities.reads_parts):
            return [{"type": "text", "text": text} for text in texts]
        return "\n".join(texts)

    def _reason(self, found: dict[str, Any], message: Mapping[str, Any]) -> None:
        """Put the reasoning of a message where the template reads it."""
        key, reasoning = self._abilities.reasoning, message.get("reasoning")
        if self._abilities.null_reasoning:
            found |= dict.fromkeys(REASONING_KEYS)
        if not reasoning or key is None:
            return
        if key == REASONING_PART:
            found["content"] = [{"type": "thinking", "thinking": reasoning}, *_as_parts(found["content"])]
        else:
            found[key] = reasoning

    def _add_calls(self, turn: Turn) -> None:
        abilities, message = self._abilities, turn.message
        name = message.get("name")
        if name and "assistant" not in abilities.names:
            texts = [_named_text(name, message["content"]), *(message.get("parts") or ())[1:]]
            message = {**message, "content": "\n".join(texts), "parts": texts, "name": None}
        if message["content"].strip() and _is_native({**message, "content": ""}, abilities):
            message = self._text_placed(message, turn.place)
        native = _is_native(message, abilities)
        if not native:
            self._put(self._plain_message(_with_calls_as_text(message)))
        elif abilities.several_calls == "separate":
            self._put_separately(message, turn.results)
            return
        else:
            self._put_calls(message)
        for result in turn.results:
            self._add_result(result, native=native)

    def _text_placed(self, message: Mapping[str, Any], place: int) -> Mapping[str, Any]:
        """A message of calls, its text put where the template shows it."""
        where = self._abilities.text_with_calls
        if where == "before":
            self._put(self._plain_message(message))
            return {"role": "assistant", "content": "", "tool_calls": message["tool_calls"]}
        if where == "previous" and self.messages and self.messages[-1]["role"] in {"user", "tool"}:
            self._append_to_last(message["content"])
            self._changed.append(f"messages[{place}].content")
            return {**message, "content": "", "parts": None}
        return message

    def _put_separately(self, message: Mapping[str, Any], results: Sequence[Turn]) -> None:
        """Put each call as a message of its own, behind it its result."""
        waiting = deque(results)
        for call in message["tool_calls"]:
            self._put_calls({**message, "tool_calls": [call]})
            message = {"role": "assistant", "content": ""}
            if waiting and waiting[0].message["tool_call_id"] == call["id"]:
                self._add_result(waiting.popleft(), native=True)

    def _put_calls(self, message: Mapping[str, Any]) -> None:
        found = self._plain_message(message)
        if self._abilities.null_content and not message["content"].strip() and isinstance(found["content"], str):
            found["content"] = None
        found["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        self._put(found)

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {
            **call,
            "id": self._id(call["id"]),
            "function": {**function, "arguments": _arguments(function["arguments"], self._abilities)},
        }

    def _id(self, call_id: str) -> str:
        return short_id(call_id) if self._abilities.short_ids else call_id

    def _add_result(self, turn: Turn, *, native: bool) -> None:
        abilities, message, function = self._abilities, turn.message, turn.function
        found: dict[str, Any] = {"role": "tool", "tool_call_id": self._id(message["tool_call_id"])}
        name = message.get("name") or function
        if name == function:  # the call has the same name
            message = {**message, "name": None}
        texts = self._named_texts(found, message)
        if abilities.result_names:
            found["name"] = name
        if not native:
            texts = [_result_text(function, "\n".join(texts))]
            if abilities.plain_results == "user":
                self._add_result_of_user(texts)
                return
        found["content"] = self._content("tool", texts)
        self._put(found)

    def _add_result_of_user(self, texts: Sequence[str]) -> None:
        content = self._content("user", texts)
        if self._open_results:
            self._append_to_last(content)
        else:
            self._put({"role": "user", "content": content})
        self._open_results = True


def _kind(role: str) -> str:
    """Return the role by which abilities are looked up."""
    return "system" if role == "developer" else role


def _joined(content: Any, more: Any) -> Any:
    """Two contents as one, with a paragraph of its own for each."""
    if isinstance(content, str) and isinstance(more, str):
        return content + PARAGRAPH + more
    return [*_as_parts(content), *_as_parts(more)]


def _as_parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}]


def _arguments(text: str, abilities: TemplateAbilities) -> Any:
    """Arguments as the template reads them; text, where an object would lose something of them.

    Numbers of an object keep their value but not their spelling: 1.50 is shown as 1.5.
    """
    text = text.strip() or "{}"
    if abilities.arguments == "text":
        return text
    try:
        found = json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_object)
    except (_LossError, ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and not _UNTEXT.search(text):
        return found
    return text if abilities.text_arguments else {"arguments": text}


class _LossError(Exception):
    """An object would lose something of the JSON."""


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _LossError
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # a key that is given twice
        raise _LossError
    return found


def _with_calls_as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose calls are one JSON array of names and arguments; the arguments as they were written."""
    functions = [
        (call["function"]["name"], call["function"]["arguments"].strip() or "{}") for call in message["tool_calls"]
    ]
    texts = [
        f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}' for name, arguments in functions
    ]
    parts = [*filter(None, message.get("parts") or [message["content"]]), f"[{', '.join(texts)}]"]
    found = {**message, "content": "\n".join(parts), "parts": parts}
    del found["tool_calls"]
    return found


def _result_text(name: str, text: str) -> str:
    """The result of a call, behind the name of its function."""
    return f"Result of {name}:\n{text}"


def _named_text(name: str, text: str) -> str:
    """The text of a message, behind the name of its author."""
    return f"{name}: {text}"
