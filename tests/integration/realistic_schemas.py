"""Schemas as the generators of other people's languages write them, by name: pydantic's own, and forms of the others.

Each is of this project; what is taken from a generator is which keywords it uses for what.
"""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, SecretStr

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFT_4 = "http://json-schema.org/draft-04/schema#"


class _Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class _Address(BaseModel):
    street: str = Field(min_length=1, max_length=20)
    zip: Annotated[str, Field(pattern=r"^\d{5}(-\d{4})?$")]


class _Person(BaseModel):
    """With a docstring, which becomes a description."""

    model_config = ConfigDict(extra="forbid")

    id: uuid.UUID
    name: str = Field(max_length=10, examples=["Ada"])
    born: dt.date
    woken: dt.time | None = None
    seen: dt.datetime
    spent: dt.timedelta = dt.timedelta(0)
    address: _Address = Field(description="Where mail goes.")
    former: list[_Address] = Field(default_factory=list, max_length=1)
    tags: Annotated[set[Literal["a", "b"]], Field(max_length=1)] = set()
    share: float = Field(gt=0, le=1, multiple_of=0.25)
    host: ipaddress.IPv4Address | None = None


class _Settings(BaseModel):
    color: _Color
    limits: dict[str, Annotated[int, Field(ge=0, le=9)]] = Field(max_length=2)
    by_color: dict[_Color, bool]
    price: Decimal = Field(ge=0, le=100, max_digits=5, decimal_places=2)
    point: tuple[int, Annotated[str, Field(max_length=3)]]
    home: Path = Path()
    secret: SecretStr = SecretStr("")
    page: AnyUrl
    level: Literal[1, 2, "high"]


class _Leaf(BaseModel):
    kind: Literal["leaf"]
    value: Annotated[int, Field(ge=-3, le=3)]


class _Branch(BaseModel):
    kind: Literal["branch"]
    left: _Leaf
    right: _Leaf | None


class _Tree(BaseModel):
    root: Annotated[_Leaf | _Branch, Field(discriminator="kind")]


def _of(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


REALISTIC: dict[str, dict[str, Any]] = {
    "pydantic: formats, references": _of(_Person),
    "pydantic: maps, tuples, enumerations": _of(_Settings),
    "pydantic: a discriminated union": _of(_Tree),
    "pydantic 1: a reference in allOf beside a default": {
        "type": "object",
        "properties": {"color": {"title": "Color", "default": "red", "allOf": [{"$ref": "#/definitions/Color"}]}},
        "required": ["color"],
        "definitions": {"Color": {"title": "Color", "enum": ["red", "green"], "type": "string"}},
    },
    "zod 4: a record, an intersection, safe integers": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "scores": {"type": "object", "propertyNames": {"type": "string"}, "maxProperties": 2,
                       "additionalProperties": {"type": "integer", "minimum": -9007199254740991,
                                                "maximum": 9007199254740991}},
            "flags": {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
                      "additionalProperties": {"type": "boolean"}, "required": ["a", "b"]},
            "both": {"allOf": [
                {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]},
            ]},
            "mail": {"type": "string", "format": "email", "pattern": "^[a-z]+@[a-z]+\\.[a-z]{2,5}$"},
            "either": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "number", "exclusiveMinimum": 0,
                                                                      "maximum": 9, "multipleOf": 0.5}]},
        },
        "required": ["scores", "flags", "both", "mail", "either"],
        "additionalProperties": False,
    },
    "NJsonSchema, draft 4: inheritance, open bounds, nullable by oneOf": {
        "$schema": _DRAFT_4,
        "title": "Order",
        "allOf": [
            {"$ref": "#/definitions/Entity"},
            {
                "type": "object",
                "properties": {
                    "amount": {"type": "number", "format": "decimal", "minimum": 0, "maximum": 5, "multipleOf": 0.5,
                               "exclusiveMinimum": True},
                    "state": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/State"}]},
                    "count": {"type": "integer", "format": "int32", "minimum": -2147483648, "maximum": 2147483647},
                },
                "required": ["amount", "state", "count"],
            },
        ],
        "definitions": {
            "Entity": {"type": "object", "properties": {"id": {"type": "string", "format": "guid", "maxLength": 4}},
                       "required": ["id"]},
            "State": {"type": "string", "description": "", "x-enumNames": ["Open", "Shut"], "enum": ["Open", "Shut"]},
        },
    },
    "System.Text.Json: types with null, patterns of numbers": {
        "type": ["object", "null"],
        "properties": {
            "count": {"type": ["string", "integer"], "pattern": "^-?(?:0|[1-9]\\d{0,3})$", "maximum": 99},
            "when": {"type": "string", "format": "date-time"},
            "days": {"type": ["array", "null"], "items": {"type": "string", "format": "date"}, "maxItems": 2},
        },
        "required": ["count", "when", "days"],
    },
    "victools (Java), draft 7: longs, maps, anchors": {
        "$schema": _DRAFT_7,
        "type": "object",
        "definitions": {"Node": {"$id": "#node", "type": "object", "properties": {"v": {"type": "boolean"}}}},
        "properties": {
            "id": {"type": "integer", "format": "int64", "minimum": -9223372036854775808,
                   "maximum": 9223372036854775807},
            "ratio": {"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.7976931348623157e308,
                      "multipleOf": 4},
            "node": {"$ref": "#node"},
            "labels": {"type": "object", "patternProperties": {"^[a-c]$": {"type": "boolean"}},
                       "additionalProperties": False},
        },
        "required": ["id", "node", "labels"],
    },
    "OpenAPI: unknown formats, nullable, examples": {
        "$schema": _DRAFT_7,
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary", "maxLength": 5, "nullable": True},
            "pass": {"type": "string", "format": "password", "minLength": 2, "maxLength": 4, "writeOnly": True},
            "pair": {"type": "array", "items": [{"type": "boolean"}, {"type": "null"}], "additionalItems": False},
        },
        "required": ["file", "pass", "pair"],
        "example": {"file": "x"},
    },
    "by hand: addresses, anchors, a forbidden name": {
        "$id": "https://example.com/schemas/trip.json",
        "type": "object",
        "properties": {
            "from": {"$ref": "place.json"},
            "to": {"$ref": "/schemas/place.json#code"},
            "via": {"$ref": "#stop", "maxLength": 2},
            "old": False,
            "kind": {"type": "string", "enum": ["rail", 5, None]},
            "never": {"type": "string", "enum": [1]},
        },
        "required": ["from", "to", "via", "kind"],
        "$defs": {
            "place": {
                "$id": "place.json",
                "type": "object",
                "properties": {"code": {"$ref": "#code"}},
                "required": ["code"],
                "$defs": {"code": {"$anchor": "code", "type": "string", "pattern": "^[A-Z]{3}$"}},
            },
            "stop": {"$anchor": "stop", "type": "string", "minLength": 1},
        },
    },
    "by hand: choices beside what they have in common": {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "size": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["kind"],
        "oneOf": [
            {"properties": {"kind": {"const": "box"}, "lid": {"type": "boolean"}}, "required": ["size"]},
            {"properties": {"kind": {"const": "bag"}}},
        ],
    },
    "by hand: at least one, at most one, none": {
        "type": "object",
        "properties": {
            "some": {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
                     "minProperties": 1, "additionalProperties": False},
            "one": {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
                    "maxProperties": 1},
            "none": {"type": "object", "properties": {"a": {"type": "null"}}, "maxProperties": 0},
            "any": {"type": "object", "maxProperties": 0},
        },
        "required": ["some", "one", "none", "any"],
    },
}  # fmt: skip
"""Every one has values that fit it, and all are served where guides are llguidance's."""
