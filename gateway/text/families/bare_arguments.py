"""Arguments that a format writes as bare text: strings as they are, other values as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gateway.text.families.call_schema import DEFINITIONS, arguments_schema, resolve
from gateway.text.families.family import Tool
from gateway.text.families.json_calls import dumps
from gateway.text.families.json_scanner import is_json
from gateway.text.families.literals import WORDS, python_json
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.structural_tags import FREE_TEXT, NOTHING, Format, constant, either, json_format, sequence
from gateway.text.families.text_source import SPACE, Emit, Steps, TextSource, need

_DEEPEST = 16  # references and alternatives that are followed inside each other
_MOST_MISSING = 8  # arguments of a call that may all be missing: their rows are as many, each with all that follow
NOTES = frozenset({"type", "title", "description", "default", "examples", *DEFINITIONS})
"""Keywords of a schema that limit no value beyond its type."""
_Held = TypeVar("_Held")
_BEGINNINGS = {"array": "[", "object": "{"}


class BareArguments:
    """Converts the arguments of one call from bare text to JSON; a string is passed on as it arrives."""

    def __init__(
        self, source: TextSource, call: FormingCall, parameters: Mapping[str, Any] | None, *, line_end: str = ""
    ) -> None:
        """Begin the arguments; ``parameters``: schema of the tool's."""
        self._source, self._say = source, call.arguments
        self._parameters = parameters
        self._line_end = line_end  # what the format writes between a value and its closing tag, outside of the value
        self._names: set[str] = set()
        self._held = ""
        self._say("{")

    def read(self, name: str, value: Callable[[Emit], Steps[None]], *, text: bool | None = None) -> Steps[None]:
        """Read an argument.

        Args:
            name: of the argument.
            value: reads the text of its value.
            text: whether its value is a string, where the format tells; None: the schema does.

        Raises:
            BrokenCallError: the argument is invalid: a second value of a name, or an undeclared name with a space in
                it, which is a broken tag.
        """
        declared = (self._parameters or {}).get("properties")
        known = isinstance(declared, Mapping) and name in declared
        need(name not in self._names and (known or (name and not re.search(r"\s", name))))
        self._say(f"{', ' if self._names else ''}{dumps(name)}: ")
        self._names.add(name)
        if text or (text is None and is_text(self._parameters, name)):
            self._held = ""
            self._say('"')
            yield from value(self._say_string)
            self._say('"')
            return
        pieces: list[str] = []
        yield from value(pieces.append)
        written = "".join(pieces)
        self._source.examined += len(written)
        written = written.removesuffix(self._line_end)
        self._say(typed_json(self._parameters, name, written) if text is None else value_json(written))

    def _say_string(self, text: str) -> None:
        """Say more of a string; a line end is held, as it may belong to the format."""
        text = self._held + text
        self._held = self._line_end if self._line_end and text.endswith(self._line_end) else ""
        shown = text[: len(text) - len(self._held)]
        if shown:
            self._say(dumps(shown)[1:-1])

    def end(self) -> None:
        """Emit the closing brace of the JSON object."""
        self._say("}")


def is_text(parameters: Mapping[str, Any] | None, name: str) -> bool:
    """Tell whether a tool's argument can only be a string, even if its text looks like a number."""
    return argument_types(parameters, name) == {"string"}


def value_json(text: str) -> str:
    """Convert an argument that may not be a string to JSON: JSON stays, other text becomes a string."""
    bare = text.strip(SPACE)
    return bare if is_json(bare) else dumps(text)


def typed_json(parameters: Mapping[str, Any] | None, name: str, text: str) -> str:
    """Convert an argument to JSON by the types of the tool's schema.

    A string that may be null is null only as ``null`` or ``None``; otherwise Python's words are JSON's, in
    upper or lower case where the type is boolean or null. Lists and objects may be Python's; other text is a string.
    """
    bare = text.strip(SPACE)
    types = argument_types(parameters, name)
    if types == {"string"} or (types == {"string", "null"} and bare not in {"null", "None"}):
        return dumps(text)
    word = bare.lower().replace("none", "null") if types & {"boolean", "null"} and "string" not in types else bare
    value = WORDS.get(word) or value_json(text)
    if value.startswith('"') and "string" not in types and bare[:1] in {_BEGINNINGS.get(kind) for kind in types}:
        literal = python_json(bare)
        return literal if literal[:1] == bare[:1] else value
    return value


def argument_types(parameters: Mapping[str, Any] | None, name: str) -> set[str]:
    """The JSON types of an argument in the tool's schema; empty where it names none."""
    return _types(argument_schema(parameters or {}, name), parameters or {}, _DEEPEST)


def argument_schema(parameters: Mapping[str, Any], name: str) -> Any:
    """The schema of an argument; None where it is not declared."""
    properties = parameters.get("properties")
    return properties.get(name) if isinstance(properties, Mapping) else None


def types_of(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema with its own definitions names; empty where it names none."""
    return _types(schema, schema, _DEEPEST)


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return set()
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _types(resolve(reference, root), root, depth - 1)
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {part for part in named if isinstance(part, str)}
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            each = [_types(part, root, depth - 1) for part in schema[key]]
            return set().union(*each) if all(each) else set()
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return {"string" if isinstance(value, str) else "other" for value in values} if isinstance(values, list) else set()


def row_format(
    tool: Tool, hold: Callable[[str, Mapping[str, Any]], Format | None], *, begin: str, between: str
) -> Format | None:
    """Make the format of a list of a tool's arguments: first the required ones, then the optional ones.

    None where an argument cannot be constrained, where further names are allowed, and where all arguments of a long
    list are optional.

    Args:
        tool: the tool.
        hold: makes the format of an argument, with its name; see ``held_arguments``.
        begin: text before the first argument.
        between: text between two arguments.
    """
    held = held_arguments(tool, hold)
    if held is None:
        return None
    required = [form for form, optional in held.values() if not optional]
    optional = [either(sequence(between, form), NOTHING) for form, optional in held.values() if optional]
    if required or not optional:
        row = [piece for form in required for piece in (between, form)]
        return sequence(begin, *row[1:], *optional)
    if len(optional) > _MOST_MISSING:
        return None
    rows = [sequence(form, *optional[number:]) for number, (form, _) in enumerate(held.values(), 1)]
    return sequence(begin, either(*rows, NOTHING))


def held_arguments(
    tool: Tool, hold: Callable[[str, Mapping[str, Any]], _Held | None]
) -> dict[str, tuple[_Held, bool]] | None:
    """Make the formats of a tool's arguments by name, in order, each with whether it may be missing.

    None where an argument cannot be constrained or may have another name. ``hold`` makes the format of an argument from
    its name and its schema with all definitions; None where it cannot.
    """
    schema = arguments_schema(tool)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties", True) is not False:
        return None
    required = schema.get("required", ())
    definitions = definitions_of(schema)
    held: dict[str, tuple[_Held, bool]] = {}
    for name, value in properties.items():
        if not isinstance(value, Mapping) or any(part not in definitions for part in _references(value)):
            return None
        form = hold(name, {**value, **definitions})
        if form is None:
            return None
        held[name] = (form, name not in required)
    return held


def bare_forms(value: Mapping[str, Any]) -> list[tuple[bool, Format]]:
    """Make the formats of an argument: whether each is a string, which stands bare, or else JSON.

    None where bare text cannot be constrained by the schema: strings have limits, or may be other types than null.
    """
    types = types_of(value)
    if "string" not in types:
        return [(False, json_format(value))] if types else []
    texts = _text_formats(value, value, _DEEPEST) if types <= {"string", "null"} else None
    if not texts:
        return []
    return [(True, either(*texts)), *([(False, constant("null"))] if "null" in types else [])]


def _text_formats(value: Any, root: Mapping[str, Any], depth: int) -> list[Format] | None:
    """The strings that a schema of strings and null allows; None where bare text cannot be held to them."""
    if not isinstance(value, Mapping) or depth == 0:
        return None
    limits = set(value) - NOTES
    for key in limits & {"anyOf", "oneOf", "$ref"}:
        inner = [resolve(value[key], root)] if key == "$ref" else value[key]
        parts = [_text_formats(part, root, depth - 1) for part in inner] if isinstance(inner, list) else [None]
        if len(limits) > 1 or None in parts:
            return None
        return [text for part in parts for text in part or ()]
    words = value.get("enum", [value["const"]] if "const" in value else None)
    if words and isinstance(words, list):
        return [constant(word) for word in words if isinstance(word, str)]
    if value.get("type") == "null":
        return []
    return None if limits or "string" not in value.get("type", "string") else [FREE_TEXT]


def definitions_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions of a schema, which a part of it needs when it stands alone."""
    return {key: schema[key] for key in DEFINITIONS if key in schema}


def _references(schema: Mapping[str, Any]) -> list[str]:
    """The first part of the path of each ``$ref`` in a schema."""
    # Quotes inside of strings are escaped, so that this is found as a key alone.
    return re.findall(r'"\$ref": "(?:#/)?([^"/]*)', dumps(schema))
