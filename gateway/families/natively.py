"""Helpers that several native call formats share: names, lists of JSON calls, and arguments in a structural tag."""

from __future__ import annotations

import string

from gateway.families.emitter import Call
from gateway.families.family import Tool
from gateway.families.json_calls import read_json_call
from gateway.families.parsing import FamilyParser
from gateway.families.schemas import arguments_schema
from gateway.families.source import Source, Steps
from gateway.families.structural import Format, json_format

NAME_CHARACTERS = string.ascii_letters + string.digits + "_-."
"""Characters of function names, namespaces included."""

LONGEST_NAME = 256
"""Characters that a name has at most."""


def read_name(source: Source) -> Steps[str]:
    """Read a function's name; empty when there is none."""
    return (yield from source.run(NAME_CHARACTERS, LONGEST_NAME))


def read_call_list(
    parser: FamilyParser, call: Call, *, word: str = "", ids: frozenset[str] = frozenset()
) -> Steps[bool]:
    """Read a JSON array of calls, or one call without an array; reports each call as it is complete.

    The first that is broken ends the list: it is content, and so is what follows.

    Args:
        parser: at the array.
        call: begun, for the first of them.
        word: an ordinary word with the array's bracket, where it has been read; shown when no call follows.
        ids: keys whose string is the model's own id of a call.

    Returns:
        Whether there was a call.
    """
    source = parser.source
    yield from source.space()
    listed = bool(word) or (yield from source.literal("["))
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


def arguments_format(tool: Tool) -> Format:
    """A tool's arguments in a structural tag: held to the schema of a strict tool, else to an object."""
    return json_format(arguments_schema(tool) if tool.strict else {"type": "object"})
