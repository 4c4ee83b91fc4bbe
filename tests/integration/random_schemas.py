"""Random JSON schemas whose answers are bounded: no string, array, object or number can go on for ever."""

from __future__ import annotations

import random
from typing import Any

_NAMES = (
    "name", "city", "age", "score", "tags", "owner", "size", "color", "überschrift", "items", "note", "kind", "id",
    "flag", "price", "weight",
)  # fmt: skip
_WORDS = ("red", "blue", "größer", "A-1", "two words", 'quote " and \\', "你好", "x/y")
_PATTERNS = ("[A-Z]{2}-[0-9]{3}", "(yes|no|maybe)", "#[0-9a-f]{6}", "[a-zäöü]{1,8}")
_FORMATS = ("date", "time", "uuid", "ipv4")
_DEEPEST = 2


def random_schema(rng: random.Random) -> dict[str, Any]:
    """A schema of an object."""
    definitions = {"part": _any(rng, _DEEPEST)}
    schema = _object(rng, 0)
    if rng.random() < 0.3:
        name = rng.choice(_NAMES)
        schema["properties"][name] = {"$ref": "#/$defs/part"}
        schema["$defs"] = definitions
    return schema


def _any(rng: random.Random, depth: int) -> dict[str, Any]:
    simple = [_text, _text, _integer, _number, _enum, _other]
    return rng.choice(simple if depth >= _DEEPEST else [*simple, _array, _object, _choice])(rng, depth)


def _text(rng: random.Random, _depth: int) -> dict[str, Any]:
    kind = rng.random()
    if kind < 0.5:
        least = rng.randrange(3)
        return {"type": "string", "minLength": least, "maxLength": least + rng.randrange(1, 12)}
    if kind < 0.75:
        return {"type": "string", "pattern": f"^{rng.choice(_PATTERNS)}$"}
    return {"type": "string", "format": rng.choice(_FORMATS)}


def _integer(rng: random.Random, _depth: int) -> dict[str, Any]:
    least = rng.randrange(-50, 50)
    bounds = ("minimum", "maximum") if rng.random() < 0.7 else ("exclusiveMinimum", "exclusiveMaximum")
    return {"type": "integer", bounds[0]: least, bounds[1]: least + rng.randrange(2, 500)}


def _number(rng: random.Random, _depth: int) -> dict[str, Any]:
    # A step bounds the digits.
    return {"type": "number", "minimum": 0, "maximum": rng.randrange(1, 100), "multipleOf": rng.choice((0.5, 0.25))}


def _enum(rng: random.Random, _depth: int) -> dict[str, Any]:
    values: list[Any] = rng.sample(_WORDS, 3)
    return {"enum": [*values, rng.choice((None, 3, True, -0.5))]}


def _other(rng: random.Random, _depth: int) -> dict[str, Any]:
    return rng.choice(
        ({"type": "boolean"}, {"type": "null"}, {"const": {"a": [1, "é"]}}, {"type": ["boolean", "null"]})
    )


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randrange(2)
    schema: dict[str, Any] = {"type": "array", "minItems": least, "maxItems": least + rng.randrange(1, 3)}
    schema["items"] = _any(rng, depth + 1)
    if rng.random() < 0.3:
        schema["prefixItems"] = [_any(rng, _DEEPEST)]
    return schema


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(_NAMES, rng.randrange(1, 5 - depth))
    return {
        "type": "object",
        "properties": {name: _any(rng, depth + 1) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
        "additionalProperties": False,
    }


def _choice(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(rng, depth + 1), _any(rng, _DEEPEST)]}


def random_wide_schema(rng: random.Random) -> dict[str, Any]:
    """A schema of an object with what only some guides have: constraints together, further names, formats with more."""
    parts: list[dict[str, Any]] = [_object(rng, 1) for _ in range(rng.randrange(1, 3))]
    for place, part in enumerate(parts):
        del part["additionalProperties"]
        part["properties"] = {f"{name} {place}": each for name, each in part["properties"].items()}
        part["required"] = [f"{name} {place}" for name in part["required"]]
        part["properties"]["both"] = {"type": "object", "properties": {f"at {place}": {"maxLength": 5}}}
    schema: dict[str, Any] = {"type": "object", "$defs": {"first": parts[0], "text": _wide_text(rng)}}
    if rng.random() < 0.5:
        schema["allOf"] = [{"$ref": "#/$defs/first"}, *parts[1:]]
    else:
        schema["$ref"] = "#/$defs/first"
    names = rng.sample(_NAMES, 3)
    schema["properties"] = {name: rng.choice((_wide_text, _wide_value, _wide_number))(rng) for name in names}
    schema["properties"]["kind"] = {"$ref": "#/$defs/text", "maxLength": 38}
    schema["required"] = rng.sample(names, rng.randrange(3))
    if rng.random() < 0.3:
        schema["anyOf"] = [{"required": [name]} for name in names[:2]]
    if rng.random() < 0.2:
        more = {"^x-[a-z]{1,3}$": {"type": "boolean"}}
        rest = rng.choice((False, {"type": ["object", "null"], "maxProperties": 0}))
        schema["properties"]["map"] = {"patternProperties": more, "additionalProperties": rest}
    return schema


def _wide_text(rng: random.Random) -> dict[str, Any]:
    kind = rng.random()
    if kind < 0.4:
        return {"type": ["string", "null"], "pattern": rng.choice(_PATTERNS), "maxLength": rng.randrange(9, 14)}
    if kind < 0.7:
        return {"type": "string", "format": rng.choice((*_FORMATS, "date-time", "hostname")), "maxLength": 40}
    return {"type": "string", "anyOf": [{"maxLength": 2}, {"pattern": "^[a-c]+$", "maxLength": 9}]}


def _wide_value(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            {"type": "string", "enum": [*rng.sample(_WORDS, 3), 5], "minLength": 2},
            {"type": ["integer", "string"], "const": 3, "minimum": 1},
            {"type": "object", "properties": {"a": {"type": "null"}, "b": False}, "maxProperties": rng.randrange(2)},
            {"oneOf": [{"type": "null"}, {"enum": rng.sample(_WORDS, 2)}]},
        )
    )


def _wide_number(rng: random.Random) -> dict[str, Any]:
    return {"type": "number", "minimum": -(10**400), "maximum": rng.randrange(9), "exclusiveMinimum": -9} | (
        {"multipleOf": rng.choice((0.5, 2, 3))}
    )


def random_conflict(rng: random.Random) -> dict[str, Any]:
    """A schema of an object with constraints together that no value may fit, or one more pattern of names may."""
    make = rng.choice((_bounded, _counted, _matched, _constant, _patterned))
    parts = [make(rng) for _ in range(rng.randrange(1, 4))]
    together: dict[str, Any] = {"allOf": parts} if len(parts) > 1 else parts[0]
    if rng.random() < 0.1:
        together = _formatted(rng)
    elif rng.random() < 0.2:
        together = {"anyOf": [make(rng), make(rng)], "allOf": parts}
    return {"type": "object", "properties": {"x": together}, "required": rng.choice((["x"], []))}


def _bounded(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), 2)
    return {"type": rng.choice(("integer", "number"))} | {name: rng.choice((1, 2, 2.5, 3, 5)) for name in names}


def _counted(rng: random.Random) -> dict[str, Any]:
    kind, least, most = rng.choice((("string", "minLength", "maxLength"), ("array", "minItems", "maxItems")))
    return {"type": kind, rng.choice((least, most)): rng.randrange(4)}


def _matched(rng: random.Random) -> dict[str, Any]:
    limits = {rng.choice(("minLength", "maxLength")): rng.choice((1, 2, 3))} if rng.random() < 0.5 else {}
    return {"type": "string", "pattern": rng.choice(("^a$", "^b$", "^[ab]", "^ab", "^abc$")), **limits}


def _formatted(rng: random.Random) -> dict[str, Any]:
    limit = rng.choice(("minLength", "maxLength"))
    return {"type": "string", "format": rng.choice((*_FORMATS, "uri", "email")), limit: rng.choice((2, 9, 38, 60))}


def _constant(rng: random.Random) -> dict[str, Any]:
    values: list[Any] = rng.sample(("a", "b", "ab", 1, 2.5, None), 2)
    more: dict[str, Any] = rng.choice(({}, {"pattern": "b"}, {"pattern": "a$"}, {"minLength": 2}, {"minimum": 2}))
    return rng.choice(({"enum": values, **more}, {"const": values[0]}, {"type": "string", "maxLength": 1}))


def _patterned(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(("^x-", "^[a-z]", "^[0-9]+$", "^[A-F]{2}", "^y|^z", "_id$", "^x$"), 2)
    return {"type": "object", "patternProperties": {name: {"type": "null"} for name in names[: rng.randrange(1, 3)]}}
