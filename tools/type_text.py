"""Types and ranges in words, from JSON schemas of requests' fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_UNBOUNDED = 2**31 - 1  # a bound as high as this is that of the wire, and no reader needs it


def type_text(schema: Mapping[str, Any], classes: Mapping[str, Any]) -> str:
    """The type and range of a value, such as ``integer 1 to 128`` or ``array of at most 64 strings``.

    Args:
        schema: of the value; null is left out, since it means absent everywhere.
        classes: schemas by the names that ``$ref`` leads to.
    """
    branches = [each for each in _branches(schema) if each != {"type": "null"}]
    objects = [classes[each["$ref"].rpartition("/")[2]] for each in branches if "$ref" in each]
    texts = [_plain(each, classes) for each in branches if "$ref" not in each]
    if objects:
        texts.append(_object(objects))
    return "; or ".join(dict.fromkeys(texts))


def _branches(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    union = schema.get("anyOf") or schema.get("oneOf")
    for each in union or ():
        yield from _branches(each)
    if not union:
        yield schema


def _object(objects: Sequence[Mapping[str, Any]]) -> str:
    """Describe objects by the values of a field in which they differ, else by their fields."""
    for name in objects[0]["properties"]:
        values = [each["properties"].get(name, {}).get("const") for each in objects]
        if None not in values:
            return f"object with a {name}: {_listed(values)}"
    return f"object of {_listed(list(objects[0]['properties']), 'and')}"


def _plain(schema: Mapping[str, Any], classes: Mapping[str, Any]) -> str:
    kind = str(schema["type"])
    if "enum" in schema:
        return f"{kind}: {_listed(schema['enum'])}"
    if kind in {"integer", "number"}:
        return f"{kind}{_range(schema)}"
    if kind == "string":
        return kind + (f" of {size} characters" if (size := _size(schema, "Length")) else "")
    inner = schema.get("items") if kind == "array" else schema.get("additionalProperties")
    if not isinstance(inner, Mapping):
        return kind
    first, *more = type_text(inner, classes).split(" ", 1)
    size = _size(schema, "Items" if kind == "array" else "Properties")
    return " ".join([kind, "of", *[size] * bool(size), f"{first.rstrip(';')}s", *more])


def _range(schema: Mapping[str, Any]) -> str:
    if schema.get("exclusiveMaximum") == 2**63:
        return ", 64 bits, signed"
    least, most = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']}, to {most}"
    if least is None:
        return ""
    return f" from {least}" if most is None or most >= _UNBOUNDED else f" {least} to {most}"


def _size(schema: Mapping[str, Any], of: str) -> str:
    least, most = schema.get(f"min{of}"), schema.get(f"max{of}")
    if most is None:
        return ""
    return f"{least} to {most}" if least else f"at most {most}"


def _listed(values: Sequence[Any], conjunction: str = "or") -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} {conjunction} {last}" if others else last
