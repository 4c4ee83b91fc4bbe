"""The one schema of guided calls: an array of ``{"name": ..., "arguments": {...}}`` over the tools of a turn.

Schemas of tools keep their meaning inside it: a reference such as ``#/$defs/Place`` is one into the tool's own schema,
so a schema with references moves as a whole into the definitions of the outer one, and its references with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.families.family import Tool
from gateway.generation import Guide

# Keywords whose value is data, not a schema; and those whose value maps names to schemas (JSON Schema 2020-12).
_DATA = frozenset({"const", "enum", "default", "example", "examples"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


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


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments: always an object, an empty one for a tool without parameters."""
    if not tool.parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    parameters = dict(tool.parameters)
    if "type" in parameters or "$ref" in parameters or are_objects(parameters):
        return parameters
    return {"type": "object", **parameters}


def are_objects(schema: Mapping[str, Any]) -> bool:
    """Whether all values of a guide's schema are objects: by its type, its constants, or those of its alternatives."""
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
    """The guide of an answer that consists of calls, of one alone where they are not ``parallel``.

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
    """The schema of a guide whose answers are JSON objects; None for every other guide."""
    if response.kind == "json":
        return {"type": "object"}
    if response.kind != "json_schema":
        return None
    schema = json.loads(response.text)
    return schema if isinstance(schema, dict) and are_objects(schema) else None
