"""Calls written as JSON: ``{"name": ..., "arguments": {...}}`` in its variants, and arrays of it, guided ones too."""

from __future__ import annotations

import json
import string
from typing import Any

from gateway.families.family_parser import FamilyParser
from gateway.families.json_scanner import JsonScanner
from gateway.families.parser_events import FormingCall
from gateway.families.text_source import Steps, TextSource

NAME_CHARACTERS = string.ascii_letters + string.digits + "_-."
"""Characters of function names, namespaces included."""

LONGEST_NAME = 256
"""Characters that a name has at most."""

_ARGUMENTS = ("arguments", "parameters")


class GuidedParser(FamilyParser):
    """Parses the array that ``call_schema.calls_schema`` describes, in all families; also content in its place.

    An answer that does not keep to the guide is content from the first wrong character on.
    """

    def run(self) -> Steps[None]:
        """Read reasoning, then the array or content."""
        yield from self.think(opened=self.opened)
        call = self.begin_call()
        yield from self.source.space()
        if (yield from self.source.literal("[")):
            yield from read_call_list(self, call, listed=True)
        else:
            self.broken(call)


def read_name(source: TextSource) -> Steps[str]:
    """Read a function's name; empty when there is none."""
    return (yield from source.run(NAME_CHARACTERS, LONGEST_NAME))


def read_call_list(
    parser: FamilyParser, call: FormingCall, *, word: str = "", listed: bool = False, ids: bool = False
) -> Steps[bool]:
    """Read a JSON array of calls, or one call without an array; reports each call as it is complete.

    The first that is broken ends the list: it is content, and so is the text behind it.

    Args:
        parser: at the array.
        call: begun, for the first of them.
        word: an ordinary word with the array's bracket, where it has been read; shown when no call follows.
        listed: whether the array's bracket has been read.
        ids: whether the calls may have ids of the model's own.

    Returns:
        Whether there was a call.
    """
    source = parser.source
    yield from source.space()
    listed = listed or bool(word) or (yield from source.literal("["))
    called = False
    while True:
        if not (yield from read_json_call(source, call, ids=ids)) or not call.complete():
            if not called and not call.started:
                parser.emitter.content(word)
            parser.broken(call)
            return called or call.started
        called = True
        yield from source.space()
        if not listed or not (yield from source.literal(",")):
            break
        call = parser.begin_call()
    if listed:
        yield from source.literal("]")
    return True


def read_json_call(source: TextSource, call: FormingCall, *, ids: bool = False, opened: bool = False) -> Steps[bool]:
    """Read one object with a call's name and arguments, in any order; other keys are skipped.

    Arguments that are missing or null are ``{}``; a string that holds a JSON object is that object.

    Args:
        source: at the object, or at whitespace before it.
        call: takes name and arguments as they are known. It is not completed: the text around the object may matter.
        ids: whether the string under ``id`` is the model's own id of the call.
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
        if not (yield from _read_field(source, call, key, seen, ids=ids)):
            return False
        more = yield from _punctuation(source, ",")
    if not (yield from source.literal("}")):
        return False
    if "arguments" not in seen:
        call.arguments("{}")
    return "name" in seen


def _read_field(source: TextSource, call: FormingCall, key: str, seen: set[str], *, ids: bool) -> Steps[bool]:
    """Read the value of a key; returns whether it is one that a call may have. Notes name and arguments as seen."""
    if key == "name":
        name = yield from read_json_string(source)
        if name is None or "name" in seen or not call.named(name):
            return False
        seen.add("name")
        return True
    if key in _ARGUMENTS:
        if "arguments" in seen:
            return False
        seen.add("arguments")
        return (yield from read_arguments(source, call))
    if ids and key == "id":
        call_id = yield from read_json_string(source)
        call.identified(call_id or "")
        return call_id is not None
    return (yield from source.json(JsonScanner()))


def read_json_string(source: TextSource) -> Steps[str | None]:
    """Read a JSON string; returns its value, or None when there is no whole string."""
    pieces: list[str] = []
    if (yield from source.peek()) != '"' or not (yield from source.json(JsonScanner(), pieces.append)):
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
        return (yield from source.json(JsonScanner(), call.arguments))
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
    scanner = JsonScanner()
    stripped = text.strip(" \t\r\n")
    if not stripped.endswith("}"):
        return False
    source.examined += len(text)
    end = scanner.scan(stripped, 0)
    return scanner.complete and scanner.kind == "object" and end == len(stripped)


def dumps(value: Any) -> str:
    """JSON text of arguments that a format did not write as JSON."""
    return json.dumps(value, ensure_ascii=False)
