"""Where a schema leaves the subset that OpenAI's strict mode takes: worth a warning, since it is served here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.openai.schemas.walk import Schema, children, types_of

_LEVELS = 10
_NOT_THERE = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
              "patternProperties", "propertyNames", "minProperties", "maxProperties", "uniqueItems", "contains",
              "prefixItems", "unevaluatedProperties", "unevaluatedItems")  # fmt: skip

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


def deviations(schema: Schema, param: str) -> list[str]:
    """Paths at which OpenAI would refuse a well-formed schema with ``strict: true``.

    Args:
        schema: of the answer, or of a tool's arguments.
        param: where it stands in the request.
    """
    found = [] if types_of(schema) == ("object",) else [f"{param}.type"]
    return list(dict.fromkeys([*found, *_inside(schema, param, 0)]))


def _inside(schema: Any, path: str, level: int) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    if level > _LEVELS * 2:  # a property is two steps down: into properties, and into its schema
        yield path
        return
    for keyword in _NOT_THERE:
        if keyword in schema:
            yield f"{path}.{keyword}"
    if "format" in schema and schema["format"] not in _FORMATS and "string" in types_of(schema):
        yield f"{path}.format"
    if "object" in types_of(schema):
        if schema.get("additionalProperties") is not False:
            yield f"{path}.additionalProperties"
        if set(schema.get("properties", ())) - set(schema.get("required", ())):
            yield f"{path}.required"
    for where, part in children(schema, path):
        yield from _inside(part, where, level + 1)
