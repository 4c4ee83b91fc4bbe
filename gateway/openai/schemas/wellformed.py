"""Whether a schema is a JSON schema at all, and of a size that an engine can be asked to compile.

A schema of an earlier draft is one, too: generators of other languages write draft 4 and draft 7. So is one that no
value fits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from gateway.openai.schemas.references import localized
from gateway.openai.schemas.walk import (
    LISTED,
    MOST_CHARACTERS,
    MOST_CHOICES,
    MOST_LEVELS,
    MOST_PROPERTIES,
    NAMED,
    SINGLE,
    TYPES,
    Schema,
    refuse,
    resolve,
    unsupported,
)

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
           "maxContains")  # fmt: skip
_BOUNDS = ("minimum", "maximum")
_OPEN_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")


def check_schema(schema: Any, param: str) -> None:
    """Refuse what is no JSON schema, refers to what is not in it, or is larger than an engine should be given.

    Args:
        schema: as a request has it.
        param: where it stands in the request.

    Raises:
        BadRequestError: with the path of the first fault.
    """
    if not isinstance(schema, Mapping):
        raise refuse(param, "an object is expected")
    if len(json.dumps(schema)) > MOST_CHARACTERS:
        raise unsupported(param, f"it is longer than {MOST_CHARACTERS} characters")
    root = localized(schema)
    checker = _Checker(root)
    checker.check(root, param, 0)
    checker.check_references()


class _Checker:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._properties = 0
        self._choices = 0
        self._seen: set[int] = set()
        self._ending: dict[str, Any] = {}  # references that end, and what they lead to at once
        self._references: list[tuple[Schema, str, int]] = []

    def check(self, schema: Any, path: str, level: int) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping):
            raise refuse(path, "an object, true or false is expected")
        if level > MOST_LEVELS:
            raise unsupported(path, f"it is nested deeper than {MOST_LEVELS} levels")
        self._seen.add(id(schema))
        for keyword, value in schema.items():
            check = _VALUES.get(keyword)
            if check is not None:
                check(value, f"{path}.{keyword}")
        self._count(schema, path)
        if "$ref" in schema:
            self._references.append((schema, f"{path}.$ref", level + 1))
        self._descend(schema, path, level)

    def check_references(self) -> None:
        """Check what references lead to, once all else is: it may stand where no keyword leads."""
        for schema, path, level in self._references:  # which grow meanwhile
            target = self._target(schema, path)
            if id(target) not in self._seen:
                self.check(target, path, level)

    def _count(self, schema: Schema, path: str) -> None:
        """Count what makes a schema large, over all of it."""
        self._properties += len(_object(schema.get("properties", {}), f"{path}.properties"))
        if self._properties > MOST_PROPERTIES:
            raise unsupported(f"{path}.properties", f"it has more than {MOST_PROPERTIES} properties")
        self._choices += len(schema.get("enum", ()))
        if self._choices > MOST_CHOICES:
            raise unsupported(f"{path}.enum", f"it has more than {MOST_CHOICES} values in enums")

    def _descend(self, schema: Schema, path: str, level: int) -> None:
        for keyword in NAMED:
            for name, part in _object(schema.get(keyword, {}), f"{path}.{keyword}").items():
                self.check(part, f"{path}.{keyword}.{name}", level + 1)
        for keyword in LISTED:
            if keyword in schema:
                for index, part in enumerate(_schemas(schema[keyword], f"{path}.{keyword}")):
                    self.check(part, f"{path}.{keyword}[{index}]", level + 1)
        for keyword in SINGLE:
            part = schema.get(keyword, True)
            if keyword != "items" or not isinstance(part, list):
                self.check(part, f"{path}.{keyword}", level + 1)
        self._descend_old(schema, path, level)

    def _descend_old(self, schema: Schema, path: str, level: int) -> None:
        """Check what drafts before 2020-12 have otherwise: a list of items, and dependencies in one keyword."""
        items = schema.get("items")
        for index, each in enumerate(items if isinstance(items, list) else ()):
            self.check(each, f"{path}.items[{index}]", level + 1)
        for name, part in _object(schema.get("dependencies", {}), f"{path}.dependencies").items():
            if not isinstance(part, list):
                self.check(part, f"{path}.dependencies.{name}", level + 1)

    def _target(self, schema: Schema, path: str) -> Any:
        """What a reference leads to: something inside of this schema, and in the end no reference."""
        seen: dict[str, Any] = {}
        found: Any = schema
        while isinstance(found, Mapping) and "$ref" in found and not self._ends(found["$ref"]):
            reference = found["$ref"]
            if not isinstance(reference, str):
                raise refuse(path, "a string is expected")
            if reference in seen:
                raise refuse(path, "it refers to itself alone")
            found = seen[reference] = self._resolved(reference, path)
            if not isinstance(found, Mapping | bool):
                raise refuse(path, f"{reference[:100]!r} is no schema")
        self._ending.update(seen)
        return self._ending[schema["$ref"]]

    def _ends(self, reference: Any) -> bool:
        return isinstance(reference, str) and reference in self._ending

    def _resolved(self, reference: str, path: str) -> Any:
        try:
            return resolve(self._root, reference)
        except LookupError:
            if reference.startswith("#"):
                raise refuse(path, f"{reference[:100]!r} is nothing in this schema") from None
            raise unsupported(path, f"{reference[:100]!r} is not in this schema, and nothing is fetched") from None


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refuse(path, "an object is expected")
    return value


def _schemas(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise refuse(path, "an array of at least one schema is expected")
    return value


def _type(value: Any, path: str) -> None:
    kinds = value if isinstance(value, list) else [value]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in TYPES:
            shown = repr(kind[:64]) if isinstance(kind, str) else "this"
            raise refuse(path, f"{shown} is not one of {', '.join(TYPES)}")
    if not kinds or len(set(kinds)) < len(kinds):
        raise refuse(path, "different types are expected, at least one")


def _names(value: Any, path: str) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise refuse(path, "an array of strings is expected")
    if len(set(value)) < len(value):
        raise refuse(path, "a name is given twice")


def _enum(value: Any, path: str) -> None:
    if not isinstance(value, list):
        raise refuse(path, "an array is expected")


def _count(value: Any, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        raise refuse(path, "a whole number from 0 is expected")


def _number(value: Any, path: str) -> None:
    # Whole numbers may be beyond what a float can be, others are finite by now.
    if isinstance(value, bool) or not isinstance(value, int | float) or value in (math.inf, -math.inf):
        raise refuse(path, "a number is expected")


def _open_bound(value: Any, path: str) -> None:
    if not isinstance(value, bool):  # draft 4: whether the bound beside it is excluded
        _number(value, path)


def _multiple(value: Any, path: str) -> None:
    _number(value, path)
    if value <= 0:
        raise refuse(path, "a number above 0 is expected")


def _text(value: Any, path: str) -> None:
    if not isinstance(value, str):
        raise refuse(path, "a string is expected")


def _flag(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        raise refuse(path, "true or false is expected")


_VALUES: Mapping[str, Callable[[Any, str], None]] = {
    "type": _type,
    "required": _names,
    "enum": _enum,
    "pattern": _text,
    "format": _text,
    "uniqueItems": _flag,
    "multipleOf": _multiple,
    **dict.fromkeys(_COUNTS, _count),
    **dict.fromkeys(_BOUNDS, _number),
    **dict.fromkeys(_OPEN_BOUNDS, _open_bound),
}
