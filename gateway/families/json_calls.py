"""Calls written as JSON: ``{"name": ..., "arguments": {...}}`` in its variants, and lists of it, guided ones too."""

from __future__ import annotations

import json
import string
from dataclasses import dataclass, replace
from typing import Any

from gateway.families.family_parser import FamilyParser
from gateway.families.grammar import Grammar
from gateway.families.json_scanner import json_kind
from gateway.families.markers import Markers, markers_of
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps, TextSource

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

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read an answer; see ``Grammar``."""
        if not self.word:
            return (yield from super().run(parser))
        yield from parser.think(opened=parser.opened)
        seen = Markers(*parser.markers.texts, self.word)
        while (marker := (yield from parser.source.until(seen, parser.emitter.content))) is not None:
            if marker == self.word:
                yield from read_call_list(parser, parser.begin_call(), word=self.word, keys=self.keys)
            elif marker in self.opens:
                yield from self.read_block(parser)

    def read_block(self, parser: FamilyParser) -> Steps[bool]:
        """Read the calls behind an opening marker; returns whether there was one."""
        call = parser.begin_call()
        yield from parser.source.space()
        while (yield from parser.source.choice(markers_of(*self.opens, *self.extra))):
            yield from parser.source.space()
        return (yield from read_call_list(parser, call, keys=self.keys))


class GuidedCalls(Grammar):
    """Reads the array that ``call_schema.calls_schema`` describes, in all families; also content in its place.

    An answer that does not keep to the guide is content from the first wrong character on.
    """

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read reasoning, then the array or content."""
        yield from parser.think(opened=parser.opened)
        call = parser.begin_call()
        yield from parser.source.space()
        if (yield from parser.source.literal("[")):
            yield from read_call_list(parser, call, listed=True)
        else:
            parser.broken(call)


def read_name(source: TextSource) -> Steps[str]:
    """Read a function's name; empty when there is none."""
    return (yield from source.run(NAME_CHARACTERS, LONGEST_NAME))


def read_call_list(
    parser: FamilyParser, call: FormingCall, *, word: str = "", listed: bool = False, keys: Keys = KEYS
) -> Steps[bool]:
    """Read a JSON array of calls, or calls without an array; reports each call as it is complete.

    The first that is broken ends the list: it is content, and so is the text behind it.

    Args:
        parser: at the array.
        call: begun, for the first of them.
        word: an ordinary word with the array's bracket, where it has been read; shown when no call follows.
        listed: whether the array's bracket has been read.
        keys: of a call.

    Returns:
        Whether there was a call.
    """
    source = parser.source
    yield from source.space()
    listed = listed or bool(word) or (yield from source.literal("["))
    called = False
    while True:
        if not (yield from read_json_call(source, call, keys=keys)) or not call.complete():
            if not called and not call.started:
                parser.emitter.content(word)
            parser.broken(call)
            return called or call.started
        called = True
        yield from source.space()
        more = (yield from source.literal(",")) if listed else (yield from source.peek()) == "{"
        if not more:
            break
        call = parser.begin_call()
    if listed:
        yield from source.literal("]")
    return True


def read_json_call(source: TextSource, call: FormingCall, *, keys: Keys = KEYS, opened: bool = False) -> Steps[bool]:
    """Read one object with a call's name and arguments, in any order; other keys are skipped.

    Arguments that are missing or null are ``{}``; a string that holds a JSON object is that object.

    Args:
        source: at the object, or at whitespace before it.
        call: takes name and arguments as they are known. It is not completed: the text around the object may matter.
        keys: of the object.
        opened: whether the object's brace has been read.

    Returns:
        Whether it was a whole object with the name of a tool and an object of arguments. False: the text that was
        read is a broken call.
    """
    yield from source.space()
    if not opened and not (yield from source.literal("{")):
        return False
    seen: set[str] = set()
    more = True
    while more:
        yield from source.space()
        key = yield from read_json_string(source)
        if key is None or not (yield from _punctuation(source, ":")):
            return False
        if not (yield from _read_field(source, call, key, seen, keys)):
            return False
        more = yield from _punctuation(source, ",")
    if not (yield from source.literal("}")):
        return False
    if "arguments" not in seen:
        call.arguments("{}")
    return "name" in seen


def _read_field(source: TextSource, call: FormingCall, key: str, seen: set[str], keys: Keys) -> Steps[bool]:
    """Read the value of a key; returns whether it is one that a call may have. Notes the parts of a call as seen."""
    part = keys.part(key)
    if not part:
        return (yield from source.json())
    if part in seen or (part == "call" and not call.named(key)):
        return False
    seen.update(("call", "name", "arguments") if part == "call" else (part,))
    if part in {"call", "arguments"}:
        return (yield from read_arguments(source, call))
    text = yield from read_json_string(source)
    if part == "name":
        return text is not None and call.named(text)
    call.identified(text or "")
    return text is not None


def read_json_string(source: TextSource) -> Steps[str | None]:
    """Read a JSON string; returns its value, or None when there is no whole string."""
    pieces: list[str] = []
    if (yield from source.peek()) != '"' or not (yield from source.json(pieces.append)):
        return None
    text = "".join(pieces)
    source.examined += len(text)
    value: str = json.loads(text)
    return value


def _punctuation(source: TextSource, character: str) -> Steps[bool]:
    yield from source.space()
    found = yield from source.literal(character)
    yield from source.space()
    return found


def read_arguments(source: TextSource, call: FormingCall) -> Steps[bool]:
    """Read the arguments of a call; returns whether they were an object, a string that holds one, or null."""
    first = yield from source.peek()
    if first == "{":
        return (yield from source.json(call.arguments))
    if first == '"':
        text = yield from read_json_string(source)
        if text is None or not _is_object(source, text):
            return False
        call.arguments(text)
        return True
    if not (yield from source.literal("null")):
        return False
    call.arguments("{}")
    return True


def _is_object(source: TextSource, text: str) -> bool:
    """Whether a text is one JSON object and nothing else; counted as examined."""
    stripped = text.strip(" \t\r\n")
    if not stripped.endswith("}"):
        return False
    source.examined += len(text)
    return json_kind(stripped) == "object"


def dumps(value: Any) -> str:
    """JSON text of arguments that a format did not write as JSON."""
    return json.dumps(value, ensure_ascii=False)
