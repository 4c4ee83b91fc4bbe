"""Checks that a schema is a valid JSON schema, small enough to compile, and within OpenAI's strict mode.

Schemas of earlier drafts pass: generators of other languages write draft 4 and draft 7. A schema that no value fits
passes, too. A metaschema of jsonschema is not a substitute: it knows one draft, and took 18 s for a list of 32,000
schemas that is checked here in 0.2 s.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.text.bad_request import BadRequestError
from gateway.text.bounded_dict import BoundedDict
from gateway.text.client_json import write_client_json
from gateway.text.guides.keywords import (
    LISTED,
    NAMED,
    NESTED,
    TYPES,
    Schema,
    UnknownTargetError,
    children,
    invalid,
    parts,
    types_of,
    unsupported,
)
from gateway.text.guides.references import localized, resolve

_KEY_BYTES = 32
_NULL = re.compile(rb"[:,\[]null")
_passed = BoundedDict[bytes | None, bool](4096)  # digests of schemas that have passed
_MOST_LEVELS = 32
_MOST_PROPERTIES = 5000
_MOST_CHOICES = 1000
_MOST_CHARACTERS = 131_072

# Strict mode's own.
_STRICT_LEVELS = 10
_NOT_STRICT = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
               "patternProperties", "propertyNames", "minProperties", "maxProperties", "uniqueItems", "contains",
               "prefixItems", "unevaluatedProperties", "unevaluatedItems")  # fmt: skip
_STRICT_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

_Fault = Callable[[Any], str | None]
"""Returns the fault of a keyword's value, None where it has none."""


def check_schema(schema: Any, param: str, tenant: str = "") -> None:
    """Reject a value that is not a JSON schema, refers outside of itself, or is too large for engines.

    Args:
        schema: schema of a request.
        param: path of the schema in the request.
        tenant: owner for whom a valid schema is not checked again; others cannot learn about it by timing.

    Raises:
        BadRequestError: with the path of the first fault.
    """
    if not isinstance(schema, Mapping):
        raise invalid(param, "the value must be an object")
    text = write_client_json(schema)
    key = _key(tenant, text)
    if key in _passed:  # the tools of an agent are the same at each turn
        return
    # To write one that is far too long by the standard library would hold up others for ten times as long.
    if len(text) > 2 * _MOST_CHARACTERS or len(json.dumps(schema)) > _MOST_CHARACTERS:
        raise unsupported(param, f"the schema is longer than {_MOST_CHARACTERS} characters")
    root = localized(schema)
    checker = _Checker(root)
    checker.check(root, param, 0)
    checker.check_references()
    if key is not None:
        _passed[key] = True


def readable_part(schema: Mapping[str, Any], error: BadRequestError) -> dict[str, Any]:
    """Extract the readable part of an ill-formed object schema: well-formed properties; other properties are allowed.

    Args:
        schema: the schema of a request.
        error: the error that ``check_schema`` raised for it.

    Raises:
        BadRequestError: the given error, if the schema is well-formed but unsupported.
    """
    if error.code != "invalid_json_schema" and not isinstance(error, UnknownTargetError):
        raise error
    root = localized(schema)
    groups = {key: root[key] for key in ("properties", "$defs", "definitions") if isinstance(root.get(key), Mapping)}
    checker = _Checker({key: parts for key, parts in groups.items() if key != "properties"})
    waiting = [part for parts in groups.values() for part in parts.values()]
    users: dict[int, list[int]] = {id(part): [] for part in waiting}  # of each part, those that refer to it
    faulty: list[int] = []
    for part in waiting:  # which grows
        try:
            for target in checker.targets(part):
                waiting += () if id(target) in users else (target,)
                users.setdefault(id(target), []).append(id(part))
        except BadRequestError:  # noqa: PERF203 - one a part
            faulty.append(id(part))
    for each in faulty:  # which grows
        faulty += users.pop(each, ())
    sound = {key: {name: part for name, part in parts.items() if id(part) in users} for key, parts in groups.items()}
    return {"type": "object", "properties": {}, "additionalProperties": True, **sound}


def _key(tenant: str, text: bytes) -> bytes | None:
    """The digest by which a schema of a tenant is known to have passed; None of one with nulls.

    A null may have been a number that JSON does not have.
    """
    if _NULL.search(text):
        return None
    return hashlib.blake2b(tenant.encode() + b"\0" + text, digest_size=_KEY_BYTES).digest()  # JSON has no NUL


def deviations(schema: Schema, param: str) -> list[str]:
    """List the paths at which OpenAI, unlike this gateway, would reject a well-formed schema with ``strict: true``.

    Args:
        schema: of the answer, or of a tool's arguments.
        param: path of it in the request.
    """
    found = [] if types_of(schema) == ("object",) else [f"{param}.type"]
    return list(dict.fromkeys([*found, *_deviations(schema, param, 0)]))


def _deviations(schema: Any, path: str, level: int) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    if level > _STRICT_LEVELS * 2:  # a property is two steps down: into properties, and into its schema
        yield path
        return
    yield from (f"{path}.{keyword}" for keyword in _NOT_STRICT if keyword in schema)
    kinds = types_of(schema)
    if "format" in schema and schema["format"] not in _STRICT_FORMATS and "string" in kinds:
        yield f"{path}.format"
    if "object" in kinds:
        if schema.get("additionalProperties") is not False:
            yield f"{path}.additionalProperties"
        if set(schema.get("properties", ())) - set(schema.get("required", ())):
            yield f"{path}.required"
    for where, part in children(schema, path):
        yield from _deviations(part, where, level + 1)


class _Checker:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._properties = self._choices = 0
        self._seen: set[int] = set()
        self._ending: dict[str, Any] = {}  # references that end, and the targets that they name themselves
        self._references: list[tuple[Schema, str, int]] = []

    def check(self, schema: Any, path: str, level: int) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping):
            raise invalid(path, "the value must be an object, true or false")
        if level > _MOST_LEVELS:
            raise unsupported(path, f"the schema is nested deeper than {_MOST_LEVELS} levels")
        self._seen.add(id(schema))
        for keyword in schema:
            _hold(schema, keyword, _VALUES, path)
        self._count(schema, path)
        if "$ref" in schema:
            self._references.append((schema, f"{path}.$ref", level + 1))
        for keyword in NESTED:
            if keyword in schema:
                _hold(schema, keyword, _SHAPES, path)
                for where, part in parts(keyword, schema[keyword], path):
                    self.check(part, where, level + 1)

    def check_references(self) -> None:
        """Check the targets of references last: one may stand where no keyword leads."""
        for schema, path, level in self._references:  # which grow meanwhile
            target = self._target(schema, path)
            if id(target) not in self._seen:
                self.check(target, path, level)

    def targets(self, schema: Any) -> Iterator[Any]:
        """Check a schema by itself; give what it refers to, and the definitions in which that stands."""
        self._properties = self._choices = 0
        self._references.clear()
        self.check(schema, "", 0)
        for part, path, _ in self._references:
            yield self._target(part, path)
            yield resolve(self._root, "/".join(part["$ref"].split("/")[:3]))

    def _count(self, schema: Schema, path: str) -> None:
        """Count properties and constants, over all of the root."""
        if "properties" in schema:
            _hold(schema, "properties", _SHAPES, path)
        self._properties += len(schema.get("properties", ()))
        if self._properties > _MOST_PROPERTIES:
            raise unsupported(f"{path}.properties", f"the schema has more than {_MOST_PROPERTIES} properties")
        self._choices += len(schema.get("enum", ()))
        if self._choices > _MOST_CHOICES:
            raise unsupported(f"{path}.enum", f"the schema has more than {_MOST_CHOICES} enum values")

    def _target(self, schema: Schema, path: str) -> Any:
        """Return the target of a reference: a schema inside of the root, and at the end of the chain no reference."""
        chain: dict[str, Any] = {}
        found: Any = schema
        while isinstance(found, Mapping) and "$ref" in found:
            reference = found["$ref"]
            if not isinstance(reference, str):
                raise invalid(path, "the value must be a string")
            if self._ending.get(reference, found) is None:
                raise invalid(path, "the reference only refers to itself")
            if reference in self._ending:
                break
            self._ending[reference] = None  # until it is known to end
            found = chain[reference] = self._resolved(reference, path)
            if not isinstance(found, Mapping | bool):
                raise invalid(path, f"{reference[:100]!r} is not a schema")
        self._ending.update(chain)
        return self._ending[schema["$ref"]]

    def _resolved(self, reference: str, path: str) -> Any:
        try:
            return resolve(self._root, reference)
        except LookupError:
            if reference.startswith("#"):
                raise invalid(path, f"{reference[:100]!r} does not exist in this schema") from None
            raise UnknownTargetError(path, reference) from None


def _hold(schema: Schema, keyword: str, faults: Mapping[str, _Fault], path: str) -> None:
    fault = faults[keyword](schema[keyword]) if keyword in faults else None
    if fault is not None:
        raise invalid(f"{path}.{keyword}", fault)


def _unless(kind: type, fault: str) -> _Fault:
    return lambda value: None if isinstance(value, kind) else fault


def _type(value: Any) -> str | None:
    kinds = value if isinstance(value, list) else [value]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in TYPES:
            shown = repr(kind[:64]) if isinstance(kind, str) else "this"
            return f"{shown} is not one of {', '.join(TYPES)}"
    if kinds and len(set(kinds)) == len(kinds):
        return None
    return "the value must be a list of at least one type without duplicates"


def _names(value: Any) -> str | None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return "the value must be an array of strings"
    return "the names must be unique" if len(set(value)) < len(value) else None


def _count(value: Any) -> str | None:
    whole = not isinstance(value, bool) and isinstance(value, int | float) and value == int(value) and value >= 0
    return None if whole else "the value must be an integer of at least 0"


def _number(value: Any) -> str | None:
    # Whole numbers may be beyond the range of floats, others are finite by now.
    number = not isinstance(value, bool) and isinstance(value, int | float) and value not in (math.inf, -math.inf)
    return None if number else "the value must be a number"


def _open_bound(value: Any) -> str | None:
    return None if isinstance(value, bool) else _number(value)  # draft 4: whether the bound beside it is excluded


def _multiple(value: Any) -> str | None:
    return _number(value) or (None if value > 0 else "the value must be a number above 0")


def _schemas(value: Any) -> str | None:
    return None if isinstance(value, list) and value else "the value must be an array of at least one schema"


_VALUES: Mapping[str, _Fault] = {
    "type": _type,
    "required": _names,
    "enum": _unless(list, "the value must be an array"),
    "uniqueItems": _unless(bool, "the value must be true or false"),
    "multipleOf": _multiple,
    **dict.fromkeys(("pattern", "format"), _unless(str, "the value must be a string")),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _count),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _count),
    **dict.fromkeys(("minimum", "maximum"), _number),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _open_bound),
}
_SHAPES: Mapping[str, _Fault] = {
    **dict.fromkeys((*NAMED, "dependencies"), _unless(Mapping, "the value must be an object")),
    **dict.fromkeys(LISTED, _schemas),
}
