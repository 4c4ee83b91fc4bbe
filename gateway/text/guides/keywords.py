"""Keywords of JSON Schema: nested schemas, types, and the keywords that guides have.

The rewriting and docs/reference/tools.md share one table of the guides' keywords. It was tried, with values that fit
and that do not, on xgrammar 0.1.25, which TensorRT-LLM 1.2 has, and on llguidance 1.9.1, where TensorRT-LLM 1.2 has
0.7.29. An engine without a declared backend may have either, so it gets guides that both enforce.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jsonschema import Draft202012Validator

from gateway.text.bad_request import BadRequestError, printable
from gateway.text.guides.guide import GuideBackend

Schema = Mapping[str, Any]

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
BY_TYPE: Mapping[str, tuple[str, ...]] = {
    "object": (
        "properties", "additionalProperties", "required", "minProperties", "maxProperties", "patternProperties",
        "propertyNames", "unevaluatedProperties",
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
"""The keywords that are about values of one type."""

NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value maps names to schemas."""
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords whose value is a list of schemas."""
SINGLE = (
    "items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "propertyNames",
    "contains", "not", "if", "then", "else",
)  # fmt: skip
"""Keywords whose value is a schema; of ``items`` before 2020-12 a list of schemas, too."""
NESTED = (*NAMED, *LISTED, *SINGLE, "dependencies")
"""All of them; before 2019-09 ``dependencies`` maps names to a schema or a list of names."""


def invalid(param: str, message: str) -> BadRequestError:
    """Make the error for a value that is not a JSON schema."""
    return BadRequestError(f"Invalid schema: {message}.", param=printable(param, 256), code="invalid_json_schema")


def unsupported(param: str, message: str) -> BadRequestError:
    """Make the error for a valid schema that is not served."""
    return BadRequestError(
        f"Unsupported schema: {message}.", param=printable(param, 256), code="unsupported_json_schema"
    )


class UnknownTargetError(BadRequestError):
    """A reference to a schema outside of the given one."""

    def __init__(self, param: str, reference: str) -> None:
        message = f"Unsupported schema: {reference[:100]!r} is not in this schema; the gateway does not fetch schemas."
        super().__init__(message, param=printable(param, 256), code="unsupported_json_schema")


class NoValueError(BadRequestError):
    """A valid schema that no value fits."""

    def __init__(self, param: str, reason: str = "no value matches the schema") -> None:
        super().__init__(f"Unsupported schema: {reason}.", param=printable(param, 256), code="unsupported_json_schema")


def children(schema: Schema, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly inside a well-formed schema, each with its path."""
    for keyword in NESTED:
        if keyword in schema:
            yield from parts(keyword, schema[keyword], path)


def parts(keyword: str, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the schemas in the value of one keyword of ``NESTED``, each with its path."""
    here = f"{path}.{keyword}"
    if keyword in LISTED or (keyword == "items" and isinstance(value, list)):
        yield from ((f"{here}[{index}]", part) for index, part in enumerate(value))
    elif keyword in SINGLE:
        yield here, value
    else:
        named = keyword in NAMED
        yield from ((f"{here}.{name}", part) for name, part in value.items() if named or not isinstance(part, list))


def types_of(schema: Schema) -> tuple[str, ...]:
    """The types that a schema names; empty when it names none."""
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def implied(schema: Schema) -> tuple[str, ...]:
    """The type that the keywords of a schema imply, where it names none."""
    return next(((kind,) for kind, keywords in BY_TYPE.items() if any(key in schema for key in keywords)), ())


def constants(schema: Schema) -> Sequence[Any] | None:
    """The values of ``const`` or ``enum``; None where the schema has neither."""
    values: Sequence[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return values


is_of = Draft202012Validator.TYPE_CHECKER.is_type
"""Tells whether a JSON value is of a type."""


def same(one: Any, other: Any) -> bool:
    """Compare by JSON equality: 1 and 1.0 are one number, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


Support = Literal["yes", "alone", "no"]
"""``alone``: without other constraints of the same value beside it."""


class ServedKeywords(NamedTuple):
    """Keywords that are served in the same way.

    Attributes:
        keywords: keywords of JSON Schema 2020-12, or of an earlier draft.
        xgrammar: how xgrammar serves them, also where no backend is declared.
        llguidance: how llguidance serves them.
        note: note for the document.
    """

    keywords: tuple[str, ...]
    xgrammar: Support
    llguidance: Support
    note: str = ""


TABLE: Sequence[ServedKeywords] = (
    ServedKeywords(("type",), "yes", "yes", "also several"),
    ServedKeywords(("enum", "const"), "yes", "yes", "the values that match the other keywords"),
    ServedKeywords(
        ("$ref",), "alone", "yes", "to any place in the schema, also by `$id`, `$anchor` and relative addresses"
    ),
    ServedKeywords(("anyOf",), "alone", "yes"),
    ServedKeywords(("oneOf",), "alone", "yes", "with schemas that differ in type, constant or a property"),
    ServedKeywords(("allOf",), "alone", "yes", "xgrammar: with one schema"),
    ServedKeywords(("minLength", "maxLength"), "yes", "yes"),
    ServedKeywords(("pattern",), "alone", "yes", "without look-around, word boundaries and back-references"),
    ServedKeywords(("format",), "alone", "yes", "see below"),
    ServedKeywords(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "yes", "yes", "also in the form of draft 4"
    ),
    ServedKeywords(("multipleOf",), "no", "yes", "with at most 9 digits"),
    ServedKeywords(
        ("items", "prefixItems", "minItems", "maxItems"), "yes", "yes", "also `items` as an array, before 2020-12"
    ),
    ServedKeywords(("additionalItems",), "yes", "yes", "with `items` as an array; otherwise without meaning"),
    ServedKeywords(
        ("properties", "required", "additionalProperties"), "yes", "yes", "see below for unnamed properties"
    ),
    ServedKeywords(("minProperties", "maxProperties"), "yes", "yes", "llguidance: if at most one property is optional"),
    ServedKeywords(("patternProperties",), "no", "yes", "with patterns that start differently"),
    ServedKeywords(("propertyNames",), "yes", "yes", "`enum`; with llguidance `pattern`, too"),
    ServedKeywords(
        ("unevaluatedProperties",),
        "yes",
        "yes",
        "if the evaluated properties do not depend on a choice between schemas",
    ),
    ServedKeywords(("unevaluatedItems",), "no", "no"),
    ServedKeywords(("uniqueItems", "contains", "minContains", "maxContains"), "no", "no"),
    ServedKeywords(("not", "if", "then", "else"), "no", "no"),
    ServedKeywords(("dependentRequired", "dependentSchemas", "dependencies"), "no", "no"),
    ServedKeywords(("$dynamicRef", "$recursiveRef"), "no", "no"),
)
"""Keywords that are not in it are annotations."""

CONSTRAINTS = frozenset(keyword for row in TABLE for keyword in row.keywords)


def never(backend: GuideBackend | None) -> frozenset[str]:
    """The keywords of JSON Schema that a guide backend does not support."""
    return frozenset(
        keyword
        for row in TABLE
        if (row.llguidance if backend == "llguidance" else row.xgrammar) == "no"
        for keyword in row.keywords
    )


_NEEDS: Mapping[str, frozenset[str]] = {
    "if": frozenset({"then", "else"}),
    "then": frozenset({"if"}),
    "else": frozenset({"if"}),
    "minContains": frozenset({"contains"}),
    "maxContains": frozenset({"contains"}),
}
"""Keywords without meaning where none of these others stands beside them."""
_NOTHING: Mapping[str, tuple[object, ...]] = {
    "not": (False,),
    "unevaluatedItems": (True, {}),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies", "patternProperties"), ({},)),
}
"""Values with which keywords have no meaning."""


def is_empty(schema: Schema, keyword: str) -> bool:
    """Tell whether a keyword has no meaning in a schema, so that nothing is lost without it."""
    value: object = schema[keyword]
    if keyword in _NEEDS:
        return not _NEEDS[keyword] & schema.keys()
    if keyword == "multipleOf":
        return value == 1 and types_of(schema) == ("integer",)
    if keyword == "uniqueItems":
        return value is False or bool(schema.get("maxItems", 2) <= 1)
    return any(value == nothing and type(value) is type(nothing) for nothing in _NOTHING.get(keyword, ()))


def document() -> str:
    """Write the table for docs/reference/tools.md."""
    lines = ["| keyword | xgrammar, or not declared | llguidance | |", "|---|---|---|---|"]
    for row in TABLE:
        names = ", ".join(f"`{keyword}`" for keyword in row.keywords)
        lines.append(f"| {names} | {row.xgrammar} | {row.llguidance} | {row.note} |")
    return "\n".join(lines)
