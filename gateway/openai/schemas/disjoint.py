"""Whether no value fits two schemas, as far as their types, constants and discriminating properties tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from gateway.openai.schemas.conjunction import Conjunct, implied
from gateway.openai.schemas.walk import Schema, followed, is_of, same, types_of

_DEEPEST = 4
_MOST_COMPARISONS = 50_000  # some 0.3 s: 300 schemas, each with each


class Disjointness:
    """Tells disjoint schemas within one root schema, with a bound on the work for all of it."""

    def __init__(self, root: Schema) -> None:
        """Begin with nothing compared.

        Args:
            root: well-formed; references are into it.
        """
        self._root = root
        self._left = _MOST_COMPARISONS

    def all(self, schemas: Sequence[Any], *, closed: bool, beside: Conjunct) -> bool:
        """Whether each two of the schemas are provably disjoint, within the bound; then ``oneOf`` is ``anyOf``.

        Args:
            schemas: well-formed.
            closed: whether answers have no properties but those that their schema names, where it leaves that open.
            beside: what a value must fit besides.
        """
        return all(
            self._two(one, other, 0, beside) or (closed and self._lacks(one, other) and self._lacks(other, one))
            for one, other in combinations(schemas, 2)
        )

    def _lacks(self, one: Any, other: Any) -> bool:
        """Whether objects of ``one`` that have no properties but the named ones lack one that ``other`` requires."""
        one, other = followed(self._root, one), followed(self._root, other)
        if not isinstance(one, dict) or not isinstance(other, dict) or not _closable(one):
            return False
        if types_of(one) != ("object",) or types_of(other) != ("object",):
            return False
        self._left -= len(other.get("required", ()))
        named = {*one["properties"], *one.get("required", ())}
        return self._left > 0 and any(name not in named for name in other.get("required", ()))

    def _two(self, one: Any, other: Any, level: int, beside: Conjunct) -> bool:
        one, other = followed(self._root, one), followed(self._root, other)
        if one is False or other is False:
            return True
        if not isinstance(one, dict) or not isinstance(other, dict) or level > _DEEPEST:  # quicker than Mapping
            return False
        self._left -= 1
        return self._left >= 0 and (
            self._choice(one, other, level, beside)
            or self._choice(other, one, level, beside)
            or self._plain(one, other, level, beside)
        )

    def _choice(self, choice: Schema, other: Schema, level: int, beside: Conjunct) -> bool:
        """Whether ``choice`` is one among schemas each of which excludes the other."""
        return any(
            form in choice and all(self._two(part, other, level + 1, beside) for part in choice[form])
            for form in ("anyOf", "oneOf")
        )

    def _plain(self, one: Schema, other: Schema, level: int, beside: Conjunct) -> bool:
        values, others = _values(one), _values(other)
        if values is not None and others is not None:
            self._left -= len(values) * len(others)
            return self._left >= 0 and not any(same(value, each) for value in values for each in others)
        if values is not None or others is not None:
            given, types = (values, types_of(other)) if values is not None else (others, types_of(one))
            return bool(types) and not any(is_of(value, kind) for value in given or () for kind in types)
        if _types_differ(one, other):
            return True
        # Guides give a schema without a type the one that its keywords speak of.
        objects = all((types_of(each) or beside.kinds or implied(each)) == ("object",) for each in (one, other))
        return objects and self._told_apart(one, other, level, beside)

    def _told_apart(self, one: Schema, other: Schema, level: int, beside: Conjunct) -> bool:
        """Whether a property that one of the objects must have cannot be the other's, too."""
        shared = {*one.get("required", ()), *other.get("required", ()), *beside.required}
        properties, theirs = one.get("properties", {}), other.get("properties", {})
        self._left -= len(shared)
        if _forbids(one, other) or _forbids(other, one):
            return True
        return any(
            name in properties and name in theirs and self._two(properties[name], theirs[name], level + 1, Conjunct())
            for name in shared
        )


def _closable(schema: Schema) -> bool:
    """Whether the guide of an object has no properties but those that the schema names."""
    further = ("patternProperties", "propertyNames", "minProperties", "$ref", "allOf", "anyOf", "oneOf")
    return (
        "properties" in schema
        and schema.get("additionalProperties", False) is False
        and not any(keyword in schema for keyword in further)
    )


def _forbids(one: Schema, other: Schema) -> bool:
    """Whether ``one`` says that its objects have no further properties, of which ``other`` requires one."""
    if not _closable(one) or "additionalProperties" not in one:
        return False
    return any(name not in one["properties"] for name in other.get("required", ()))


def _values(schema: Schema) -> Sequence[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values: Sequence[Any] | None = schema.get("enum")
    return values


def _types_differ(one: Schema, other: Schema) -> bool:
    kinds, others = set(types_of(one)), set(types_of(other))
    for each in (kinds, others):
        if "number" in each:
            each.add("integer")
    return bool(kinds) and bool(others) and not kinds & others
