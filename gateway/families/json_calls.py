"""Calls written as JSON: ``{"name": ..., "arguments": {...}}`` in its variants, and lists of it, guided ones too."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gateway.families.family_parser import FamilyParser, Grammar
from gateway.families.json_scanner import is_json
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import SPACE, BrokenCallError, Steps, TextSource

NAME_CHARACTERS = string.ascii_letters + string.digits + "_-."
"""Characters of function names, namespaces included."""

LONGEST_NAME = 256
"""Characters that a name has at most."""


@dataclass(frozen=True)
class Keys:
    """The keys of a call's object.

    Attributes:
        name: of the function's name; empty: the name is itself the key of the arguments.
        arguments: of the arguments; models write the first.
        id: of the model's own id of the call; empty: there is none.
    """

    name: str = "name"
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: str = ""

    def part(self, key: str) -> str:
        """The part of a call under a key: ``name``, ``arguments``, ``id``, ``call`` for all of it; empty: none."""
        if not self.name:
            return "call"
        if key in self.arguments:
            return "arguments"
        return {self.name: "name", self.id: "id"}.get(key, "") if key else ""


KEYS = Keys()


@dataclass(frozen=True, kw_only=True)
class JsonCalls(Grammar):
    """Reads a list of calls, one call or several behind a marker; the marker at the end may be missing.

    Any of ``opens`` and ``extra`` may follow another of ``opens``.

    Attributes:
        keys: of a call.
        each: whether models write the markers around each call, instead of around all of them.
        around: the text that they write between the markers and the calls.
        separator: the text that they write between two calls.
        word: an ordinary word and the bracket of a list, which begins calls as well; text when no call follows.
    """

    keys: Keys = KEYS
    each: bool = False
    around: tuple[str, str] = ("[", "]")
    separator: str = ", "
    word: str = ""

    @property
    def call_format(self) -> CallFormat:
        """The format as a structural tag, in every form that begins a call."""
        begin, end = self.around
        forms = [self._form(text, text + begin, end + self.close) for text in self.opens]
        words = [self._form(self.word, self.word, end)] if self.word else []
        return replace(forms[0], also=(*forms[1:], *words))

    def _form(self, trigger: str, begin: str, end: str) -> CallFormat:
        keys = self.keys
        before = f'{{"{keys.name}": "' if keys.name else '{"'
        between = f'", "{keys.arguments[0]}": ' if keys.name else '": '
        if self.each:
            return CallFormat(begin + before, between, "}" + end, trigger, separator=self.separator)
        return CallFormat(before, between, "}", trigger, (begin, end), self.separator)

    @property
    def opening(self) -> Sequence[str]:
        """The markers, and the word."""
        return (*self.opens, self.word) if self.word else self.opens

    def read_block(self, parser: FamilyParser) -> Steps[bool]:
        """Read the calls behind an opening marker; returns whether there was one."""
        if parser.marker == self.word:
            return (yield from read_call_list(parser, parser.begin_call(self.word), listed=True, keys=self.keys))
        call = parser.begin_call()
        yield from parser.source.space()
        while (yield from parser.source.choice(*self.opens, *self.extra)):
            yield from parser.source.space()
        return (yield from read_call_list(parser, call, keys=self.keys))


@dataclass(frozen=True, kw_only=True)
class MessageCalls(JsonCalls):
    """Reads a JSON call in a message of its own, or behind a marker; an answer has one call.

        Text.<|message_sep|>

        function call<|role_sep|>
        {"name": "f", "arguments": {"a": 1}}

    Attributes:
        header: all that stands between the text and the call: a marker, the role, which is an ordinary word, a marker.
    """

    header: str
    each: bool = True
    around: tuple[str, str] = ("", "")
    whole: bool = True

    @cached_property
    def _pieces(self) -> Sequence[str]:
        return [piece.strip() for piece in re.findall(r"<[^<>]*>|[^<]+", self.header) if piece.strip()]

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        return (*super().markers, *self._pieces[::2])

    @property
    def opening(self) -> Sequence[str]:
        """Those that a call may follow."""
        return (*self.opens, self._pieces[0])

    @property
    def call_format(self) -> CallFormat:
        """The format as a structural tag, in both forms."""
        message = replace(self._form(self.header, self.header, ""), once=True)
        return replace(super().call_format, once=True, also=(message,))

    def read_block(self, parser: FamilyParser) -> Steps[bool]:
        """Read the call behind an opening marker; returns whether there was one."""
        source, call = parser.source, parser.begin_call(header=True)
        for text in self._pieces[1:]:
            yield from source.spaced(text)
        yield from source.space()
        if (yield from source.peek()) == "{":
            parser.end_header()
        return (yield from read_call_list(parser, call, keys=self.keys))

    def without_format(self, raw: str, *, cut: bool) -> str:  # noqa: ARG002 - of the base
        """The text without the role, which is shown nowhere; see ``Grammar``."""
        return raw.replace("".join(self._pieces[1:]), "")


class GuidedCalls(Grammar):
    """Reads the array that ``call_schema.calls_schema`` describes, in all families; also content in its place.

    An answer that does not keep to the guide is content from the first wrong character on.
    """

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read reasoning, then the array or content."""
        yield from parser.think(opened=parser.opened)
        call = parser.begin_call()
        if (yield from parser.source.spaced("[")):
            yield from read_call_list(parser, call, listed=True)
        else:
            parser.broken(call)


def read_name(source: TextSource) -> Steps[str]:
    """Read a function's name; empty when there is none."""
    return (yield from source.run(NAME_CHARACTERS, LONGEST_NAME))


def read_call_list(parser: FamilyParser, call: FormingCall, *, listed: bool = False, keys: Keys = KEYS) -> Steps[bool]:
    """Read a JSON array of calls, or calls without an array; reports each call as it is complete.

    The first that is broken ends the list: it is content, and so is the text behind it.

    Args:
        parser: at the array.
        call: begun, for the first of them.
        listed: whether the array's bracket has been read.
        keys: of a call.

    Returns:
        Whether there was a call.
    """
    source = parser.source
    listed = listed or (yield from source.spaced("["))
    called = False
    while True:
        if not (yield from parser.attempt(call, read_json_call(source, call, keys=keys))):
            return called or call.started
        call.complete()
        called = True
        yield from source.space()
        more = (yield from source.literal(",")) if listed else (yield from source.peek()) == "{"
        if not more:
            break
        call = parser.begin_call()
    if listed:
        yield from source.literal("]")
    return True


def read_json_call(source: TextSource, call: FormingCall, *, keys: Keys = KEYS, opened: bool = False) -> Steps[None]:
    """Read one object with a call's name and arguments, in any order; other keys are skipped.

    Arguments that are missing or null are ``{}``; a string that holds a JSON object is that object.

    Args:
        source: at the object, or at whitespace before it.
        call: takes name and arguments as they are known. It is not completed: the text around the object may matter.
        keys: of the object.
        opened: whether the object's brace has been read.

    Raises:
        BrokenCallError: when it is no whole object with the name of a tool and an object of arguments.
    """
    if not opened:
        yield from source.expect("{")
    seen: set[str] = set()
    more = True
    while more:
        yield from source.space()
        key = yield from read_json_string(source)
        yield from source.expect(":")
        yield from source.space()
        yield from _read_field(source, call, keys.part(key), key, seen)
        more = yield from source.spaced(",")
    yield from source.expect("}")
    if "name" not in seen:
        raise BrokenCallError
    if "arguments" not in seen:
        call.arguments("{}")


def _read_field(source: TextSource, call: FormingCall, part: str, key: str, seen: set[str]) -> Steps[None]:
    """Read the value of a key, which is a ``part`` of the call as of ``Keys``; notes the parts that were seen."""
    if not part:
        return (yield from source.json())
    if part in seen:
        raise BrokenCallError
    seen.update(("call", "name", "arguments") if part == "call" else (part,))
    if part == "call":
        call.named(key)
    if part in {"call", "arguments"}:
        yield from read_arguments(source, call)
    elif part == "name":
        call.named((yield from read_json_string(source)))
    else:
        call.id = yield from read_json_string(source)


def read_json_string(source: TextSource) -> Steps[str]:
    """Read a JSON string; returns its value."""
    pieces: list[str] = []
    if (yield from source.peek()) != '"':
        raise BrokenCallError
    yield from source.json(pieces.append)
    text = "".join(pieces)
    source.examined += len(text)
    value: str = json.loads(text)
    return value


def read_arguments(source: TextSource, call: FormingCall) -> Steps[None]:
    """Read the arguments of a call: an object, a string that holds one, or null."""
    first = yield from source.peek()
    if first == "{":
        yield from source.json(call.arguments)
    elif first == '"':
        text = yield from read_json_string(source)
        if not _is_object(source, text):
            raise BrokenCallError
        call.arguments(text)
    elif (yield from source.literal("null")):
        call.arguments("{}")
    else:
        raise BrokenCallError


def _is_object(source: TextSource, text: str) -> bool:
    """Whether a text is one JSON object and nothing else; counted as examined."""
    stripped = text.strip(SPACE)
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return False
    source.examined += len(text)
    return is_json(stripped)


def dumps(value: Any) -> str:
    """JSON text of arguments that a format did not write as JSON."""
    return json.dumps(value, ensure_ascii=False)
