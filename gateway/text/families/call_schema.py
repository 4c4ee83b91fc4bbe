"""The schema of guided calls: an array of ``{"name": ..., "arguments": {...}}`` for the tools of a turn.

Schemas of tools keep their meaning inside it: a reference such as ``#/$defs/Place`` points into the tool's own schema,
so a schema with references moves as a whole into the definitions of the outer one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.text.families.family import Tool
from gateway.text.guides.guide import Guide

# Keywords whose value is data, not a schema; and those whose value maps names to schemas (JSON Schema 2020-12).
_DATA = frozenset({"const", "enum", "default", "example", "examples"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
DEFINITIONS = ("$defs", "definitions")
"""Keywords of a schema whose values references lead to."""

_DEEPEST = 8  # definitions that are put in place within each other
_MOST_PLACED = 1000  # of one tool: of definitions that use each other several times there may be any number


def _placed(schema: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema as it stands inside the outer one: itself, or a reference into ``definitions`` if it has references."""
    own = {key: value for key, value in schema.items() if key not in {"$schema", "$id"}}
    name = f"schema{len(definitions)}"
    moved = _moved(own, f"#/$defs/{name}")
    if moved == own:
        return own
    definitions[name] = moved
    return {"$ref": f"#/$defs/{name}"}


def _moved(value: Any, base: str) -> Any:
    """A copy of a schema, or of a list in one, whose references to its own root point to ``base``."""
    if isinstance(value, list):
        return [_moved(part, base) for part in value]
    if not isinstance(value, Mapping):
        return value

    def moved_part(key: str, part: Any) -> Any:
        if key == "$ref" and isinstance(part, str) and part[:2] in {"#", "#/"}:
            return base + part[1:]
        if key in _NAMED and isinstance(part, Mapping):
            return {name: _moved(inner, base) for name, inner in part.items()}
        return part if key in _DATA else _moved(part, base)

    return {key: moved_part(key, part) for key, part in value.items()}


def resolve(reference: Any, root: Mapping[str, Any]) -> Any:
    """Find the schema behind a reference within the same document; None without one."""
    found: Any = root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def definitions_in_place(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Replace references by their targets, for templates that show types but no definitions.

    A definition that uses itself, or too many definitions, are replaced by type and description.

    Args:
        tools: as chat templates read them; they stay as they are.
    """
    placed = []
    for tool in tools:
        function = tool["function"]
        parameters = function.get("parameters")
        if isinstance(parameters, Mapping) and any(key in parameters for key in DEFINITIONS):
            in_place = _Placing(parameters).placed(parameters, ())
            tool = {**tool, "function": {**function, "parameters": in_place}}  # noqa: PLW2901
        placed.append(tool)
    return placed


class _Placing:
    """Puts the definitions of one schema in place."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST_PLACED

    def placed(self, value: Any, within: tuple[str, ...]) -> Any:
        """Return a schema, or a list in one, without references; ``within``: those whose targets it is in."""
        if isinstance(value, list):
            return [self.placed(part, within) for part in value]
        if not isinstance(value, Mapping):
            return value
        reference = str(value.get("$ref"))
        target = resolve(reference, self._root)
        if isinstance(target, Mapping):
            own = {key: part for key, part in value.items() if key not in {"$ref", *DEFINITIONS}}
            if reference in within or len(within) == _DEEPEST or not self._left:
                return {**{key: target[key] for key in ("type", "description", "enum") if key in target}, **own}
            self._left -= 1
            return self.placed({**target, **own}, (*within, reference))
        parts = {key: self._part(key, part, within) for key, part in value.items() if key not in DEFINITIONS}
        alone = parts.get("allOf")
        if isinstance(alone, list) and len(alone) == 1 and isinstance(alone[0], dict):  # as older Pydantic writes it
            del parts["allOf"]
            parts = {**alone[0], **parts}
        return parts

    def _part(self, key: str, part: Any, within: tuple[str, ...]) -> Any:
        if key in _NAMED and isinstance(part, Mapping):
            return {name: self.placed(inner, within) for name, inner in part.items()}
        return part if key in _DATA else self.placed(part, within)


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments, always an object; empty for a tool without parameters."""
    if not tool.parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    parameters = dict(tool.parameters)
    if "type" in parameters or "$ref" in parameters or are_objects(parameters):
        return parameters
    return {"type": "object", **parameters}


def are_objects(schema: Mapping[str, Any]) -> bool:
    """Tell whether all values of a guide's schema are objects: by type, constants or alternatives."""
    pending, seen = [schema], {"#"}
    while pending:
        part = pending.pop()
        if part.keys() - {"$defs"} == {"$ref"}:
            if part["$ref"] not in seen:
                seen.add(part["$ref"])
                pending.append(schema["$defs"][part["$ref"].rpartition("/")[2]])
        elif "anyOf" in part and "type" not in part:
            pending += part["anyOf"]
        else:
            values = part.get("enum", [part["const"]] if "const" in part else [None])
            if part.get("type") != "object" and not all(isinstance(value, dict) for value in values):
                return False
    return True


def calls_guide(tools: Sequence[Tool], *, parallel: bool, response: Mapping[str, Any] | None) -> Guide:
    """Make the guide of an answer of calls, of only one call without ``parallel``.

    ``response``: schema of an answer without calls that is possible too; its values must not be arrays.
    """
    definitions: dict[str, Any] = {}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": _placed(arguments_schema(tool), definitions)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    item = calls[0] if len(calls) == 1 else {"anyOf": calls}
    schema: dict[str, Any] = {"type": "array", "items": item, "minItems": 1}
    if not parallel:
        schema["maxItems"] = 1
    if response is not None:
        schema = {"anyOf": [schema, _placed(response, definitions)]}
    if definitions:
        schema = {**schema, "$defs": definitions}
    return Guide("json_schema", json.dumps(schema, ensure_ascii=False))


def object_schema(response: Guide) -> dict[str, Any] | None:
    """The schema of a guide for JSON objects; None for any other guide."""
    if response.kind == "json":
        return {"type": "object"}
    if response.kind != "json_schema":
        return None
    schema = json.loads(response.text)
    return schema if isinstance(schema, dict) and are_objects(schema) else None
