"""Schemas that require themselves: every value of one would go on for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.openai.schemas.conjunction import implied
from gateway.openai.schemas.walk import Schema, children, resolve, types_of

_MOST_PASSES = 20  # over all references; two are enough for most schemas


def endless(root: Schema) -> frozenset[str]:
    """The references of a well-formed schema that lead to what no finite value fits; none where that takes too long."""
    left = dict.fromkeys(_references(root))
    finite: set[str] = set()
    for _ in range(_MOST_PASSES):
        found = [reference for reference in reversed(left) if _ends(resolve(root, reference), finite)]
        if not found:
            return frozenset(left)
        finite.update(found)
        left = {reference: None for reference in reversed(left) if reference not in finite}
    return frozenset()


def _references(root: Schema) -> Iterator[str]:
    """The references that can be reached, each as often as it is written."""
    waiting: list[Any] = [root]
    seen: set[str] = set()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping):
            continue
        waiting += [part for _, part in children(schema, "")]
        if "$ref" in schema:
            yield schema["$ref"]
            if schema["$ref"] not in seen:
                seen.add(schema["$ref"])
                waiting.append(resolve(root, schema["$ref"]))


def _ends(schema: Any, finite: set[str], outer: tuple[str, ...] = ()) -> bool:
    """Whether a schema may have a finite value, given references that do."""
    if not isinstance(schema, Mapping) or "const" in schema or "enum" in schema:
        return True
    kinds = types_of(schema) or outer
    if "$ref" in schema and schema["$ref"] not in finite and set(kinds) <= {"object", "array"}:
        return False
    if not all(_ends(part, finite, kinds) for part in schema.get("allOf", ())):
        return False
    for form in ("anyOf", "oneOf"):
        if form in schema and not any(_ends(part, finite, kinds) for part in schema[form]):
            return False
    kinds = kinds or implied(schema)
    return not kinds or any(_kind_ends(schema, kind, finite) for kind in kinds)


def _kind_ends(schema: Schema, kind: str, finite: set[str]) -> bool:
    if kind == "object":
        named = schema.get("properties", {})
        return all(_ends(named[name], finite) for name in schema.get("required", ()) if name in named)
    if kind == "array" and schema.get("minItems", 0) > 0:
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems", True)
        least = int(schema["minItems"])
        return all(_ends(part, finite) for part in first[:least]) and (least <= len(first) or _ends(rest, finite))
    return True
