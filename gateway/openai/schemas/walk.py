"""Walks over a schema: keywords, paths, references, limits (JSON Schema 2020-12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from gateway.bad_request import BadRequestError

Schema = Mapping[str, Any]

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")

NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value maps names to schemas."""
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords whose value is a list of schemas."""
SINGLE = (
    "items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "propertyNames",
    "contains", "not", "if", "then", "else",
)  # fmt: skip
"""Keywords whose value is a schema."""

MOST_LEVELS = 32
MOST_PROPERTIES = 5000
MOST_CHOICES = 1000
MOST_REPEATS = 65_536
MOST_CHARACTERS = 131_072


def refuse(param: str, message: str) -> BadRequestError:
    """The answer to what is no JSON schema."""
    shown = param[:256].encode("ascii", "backslashreplace").decode()
    return BadRequestError(f"Invalid schema: {message}.", param=shown, code="invalid_json_schema")


def unsupported(param: str, message: str) -> BadRequestError:
    """The answer to a sound schema that is not served."""
    shown = param[:256].encode("ascii", "backslashreplace").decode()
    return BadRequestError(f"Unsupported schema: {message}.", param=shown, code="unsupported_json_schema")


class NoValueError(BadRequestError):
    """A sound schema that no value fits."""

    def __init__(self, param: str, reason: str = "no value fits it") -> None:
        shown = param[:256].encode("ascii", "backslashreplace").decode()
        super().__init__(f"Unsupported schema: {reason}.", param=shown, code="unsupported_json_schema")


def children(schema: Schema, path: str) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside a well-formed schema, each with its path."""
    for keyword in NAMED:
        for name, part in schema.get(keyword, {}).items():
            yield f"{path}.{keyword}.{name}", part
    for keyword in LISTED:
        for index, part in enumerate(schema.get(keyword, ())):
            yield f"{path}.{keyword}[{index}]", part
    for keyword in SINGLE:
        part = schema.get(keyword)
        if isinstance(part, list):  # items, before 2020-12
            yield from ((f"{path}.{keyword}[{index}]", each) for index, each in enumerate(part))
        elif part is not None:
            yield f"{path}.{keyword}", part
    for name, part in schema.get("dependencies", {}).items():  # names or a schema, before 2019-09
        if not isinstance(part, list):
            yield f"{path}.dependencies.{name}", part


def resolve(root: Schema, reference: str) -> Any:
    """What a reference such as ``#/$defs/Place`` points to.

    Raises:
        LookupError: when it points to nothing here.
    """
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        raise LookupError(reference)
    found: Any = root
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            if not (key.isascii() and key.isdigit() and int(key) < len(found)):
                raise LookupError(reference)
            found = found[int(key)]
        elif isinstance(found, Mapping):
            found = found[key if key in found else unquote(key)]
        else:
            raise LookupError(reference)  # noqa: TRY004 - the reference is at fault, not a type
    return found


def followed(root: Schema, schema: Any) -> Any:
    """The schema behind a chain of references; itself when it is none. Chains of a checked schema end."""
    while isinstance(schema, dict) and "$ref" in schema:
        schema = resolve(root, schema["$ref"])
    return schema


def same(one: Any, other: Any) -> bool:
    """JSON equality: 1 and 1.0 are one number, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def is_of(value: Any, kind: str) -> bool:
    """Whether a JSON value is of a type."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int | float):
        return kind == "number" or (kind == "integer" and value == int(value))
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return names[type(value)] == kind


def types_of(schema: Schema) -> tuple[str, ...]:
    """The types that a schema names; none when it names none."""
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)
