"""Calls written as in Python, ``f(a=1, b="x")``: read, and guided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.families.bare_arguments import NOTES, argument_types, row_format
from gateway.families.json_calls import NAME_CHARACTERS, dumps, read_name
from gateway.families.parser_events import FormingCall
from gateway.families.python_literals import read_python_value
from gateway.families.structural_tags import Format, constant, either, json_format, sequence
from gateway.families.text_source import Steps, TextSource
from gateway.families.tool_plan import Tool


def read_python_call(source: TextSource, call: FormingCall, *, guided: bool = False) -> Steps[bool]:
    """Read one call with keyword arguments; returns whether it is one of a known tool.

    Args:
        source: at the name.
        call: takes name and arguments. It is not completed: the text behind it may matter.
        guided: whether ``python_arguments`` holds the arguments, so that strings and collections are JSON's.
    """
    name = yield from read_name(source)
    if not (yield from source.literal("(")) or not call.named(name):
        return False
    call.arguments("{")
    names: set[str] = set()
    while True:
        yield from source.space()
        if (yield from source.literal(")")):
            call.arguments("}")
            return True
        if not (yield from _argument(source, call, names, guided=guided)):
            return False
        yield from source.space()
        if not (yield from source.literal(",")) and (yield from source.peek()) != ")":
            return False


def _argument(source: TextSource, call: FormingCall, names: set[str], *, guided: bool) -> Steps[bool]:
    """Read one argument; as in Python, none of the ``names`` before it may come again."""
    name = yield from source.run(NAME_CHARACTERS)
    yield from source.space()
    if not name or name in names or not (yield from source.literal("=")):
        return False
    call.arguments(f"{', ' if names else ''}{dumps(name)}: ")
    names.add(name)
    if guided and (yield from source.peek()) in {'"', "[", "{"}:
        return (yield from source.json(call.arguments))
    return (yield from read_python_value(source, call.arguments))


def python_arguments(tool: Tool) -> Format | None:
    """The arguments of a tool, with the opening bracket, as a piece of a structural tag.

    Returns:
        The format; None where arguments may have other names, or names that are none in Python.
    """

    def hold(name: str, value: Mapping[str, Any]) -> Format | None:
        if not set(name).issubset(NAME_CHARACTERS):
            return None
        word = argument_types(tool.parameters, name) == {"boolean"} and NOTES.issuperset(value)
        form = either(constant("True"), constant("False")) if word else json_format(value)
        return sequence(constant(f"{name}="), form)

    return row_format(tool, hold, begin="(", between=", ")
