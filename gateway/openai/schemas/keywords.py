"""Keywords of JSON Schema by backend of guided decoding: the one table for the rewriting and for docs/tools.md.

Tried with values that fit and that do not: xgrammar 0.1.25, which TensorRT-LLM 1.2 has, and llguidance 1.9.1;
TensorRT-LLM 1.2 has llguidance 0.7.29, which was not tried. An engine that declares no backend is taken for either, so
that it is sent what both enforce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.generation.sampling_params import GuideBackend
from gateway.openai.schemas.walk import Schema, types_of

Support = Literal["yes", "alone", "no"]
"""``alone``: without other constraints of the same value beside it."""


@dataclass(frozen=True, slots=True)
class Row:
    """Keywords that are served in one way.

    Attributes:
        keywords: of JSON Schema 2020-12, or of a draft before it.
        xgrammar: also where no backend is declared.
        llguidance: the other backend.
        note: for the document.
    """

    keywords: tuple[str, ...]
    xgrammar: Support
    llguidance: Support
    note: str = ""


TABLE: Sequence[Row] = (
    Row(("type",), "yes", "yes", "also several"),
    Row(("enum", "const"), "yes", "yes", "of the values, those that fit what stands beside them"),
    Row(("$ref",), "alone", "yes", "to any place of the schema, also by `$id`, `$anchor` and relative addresses"),
    Row(("anyOf",), "alone", "yes"),
    Row(("oneOf",), "alone", "yes", "of schemas that exclude each other by type, constant or a property"),
    Row(("allOf",), "alone", "yes", "xgrammar: of one schema"),
    Row(("minLength", "maxLength"), "yes", "yes"),
    Row(("pattern",), "alone", "yes", "without look-around, word boundaries and back-references"),
    Row(("format",), "alone", "yes", "see below"),
    Row(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "yes", "yes", "also draft 4's"),
    Row(("multipleOf",), "no", "yes", "with at most 9 digits"),
    Row(("items", "prefixItems", "minItems", "maxItems"), "yes", "yes", "also `items` as an array, before 2020-12"),
    Row(("additionalItems",), "yes", "yes", "beside `items` as an array; elsewhere it says nothing"),
    Row(("properties", "required", "additionalProperties"), "yes", "yes", "see below for what is not named"),
    Row(("minProperties", "maxProperties"), "yes", "yes", "llguidance: where at most one name is left to choose"),
    Row(("patternProperties",), "no", "yes", "of patterns whose beginnings differ"),
    Row(("propertyNames",), "yes", "yes", "`enum`; with llguidance `pattern`, too"),
    Row(("unevaluatedProperties",), "yes", "yes", "where no choice among schemas decides what is evaluated"),
    Row(("unevaluatedItems",), "no", "no"),
    Row(("uniqueItems", "contains", "minContains", "maxContains"), "no", "no"),
    Row(("not", "if", "then", "else"), "no", "no"),
    Row(("dependentRequired", "dependentSchemas", "dependencies"), "no", "no"),
    Row(("$dynamicRef", "$recursiveRef"), "no", "no"),
)
"""Keywords that are not in it are annotations."""

CONSTRAINTS = frozenset(keyword for row in TABLE for keyword in row.keywords)


def never(backend: GuideBackend | None) -> frozenset[str]:
    """The keywords that a backend does not have."""
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
"""Keywords that say nothing without one of others."""


_NOTHING: Mapping[str, tuple[object, ...]] = {
    "not": (False,),
    "unevaluatedItems": (True, {}),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies", "patternProperties"), ({},)),
}
"""Keywords that say nothing with these values."""


def is_empty(schema: Schema, keyword: str) -> bool:
    """Whether a keyword of a schema says nothing, so that nothing is lost without it."""
    value: object = schema[keyword]
    if keyword in _NEEDS:
        return not _NEEDS[keyword] & schema.keys()
    if keyword == "multipleOf":
        return value == 1 and types_of(schema) == ("integer",)
    if keyword == "uniqueItems":
        return value is False or bool(schema.get("maxItems", 2) <= 1)
    return any(value == nothing and type(value) is type(nothing) for nothing in _NOTHING.get(keyword, ()))


def document() -> str:
    """The table for docs/tools.md."""
    lines = ["| keyword | xgrammar, or not declared | llguidance | |", "|---|---|---|---|"]
    for row in TABLE:
        names = ", ".join(f"`{keyword}`" for keyword in row.keywords)
        lines.append(f"| {names} | {row.xgrammar} | {row.llguidance} | {row.note} |")
    return "\n".join(lines)
