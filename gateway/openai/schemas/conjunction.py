"""Schemas that one value must fit together: the properties that they name, and the types that they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.openai.schemas.walk import Schema, resolve, types_of

BY_TYPE: Mapping[str, tuple[str, ...]] = {
    "object": (
        "properties", "additionalProperties", "required", "minProperties", "maxProperties", "patternProperties",
        "propertyNames", "unevaluatedProperties",
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
"""The keywords that speak of values of one type."""

_DEEPEST = 50  # references and combinations within each other
_STATED = ("additionalProperties", "patternProperties", "propertyNames")


@dataclass(frozen=True, slots=True)
class Conjunct:
    """Where a schema is one of those that a value must fit together.

    Attributes:
        kinds: types that the others leave; none where they leave all.
        shared: properties that more than one of them names; None: any may be.
        required: properties that the others require.
    """

    kinds: tuple[str, ...] = ()
    shared: frozenset[str] | None = None
    required: frozenset[str] = frozenset()

    def inside(self, name: str) -> Conjunct | None:
        """The place of a property's schema; None where it stands alone."""
        return Conjunct() if self.shared is None or name in self.shared else None

    def narrowed(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """The types that are left; those of the schema itself where nothing is."""
        if not kinds or not self.kinds:
            return kinds or self.kinds
        left = [kind for kind in kinds if kind in self.kinds or (kind == "integer" and "number" in self.kinds)]
        return (*left, *(["integer"] if "number" in kinds and "integer" in self.kinds else [])) or kinds


@dataclass(frozen=True, slots=True)
class Shape:
    """What a schema says together with all that its value must fit besides.

    Attributes:
        names: properties, and how many of the schemas have a schema for each.
        stated: whether one of them says what else an object may have.
        chosen: whether one of them is a choice among schemas.
        kinds: the types that they name.
        implied: the type that their keywords speak of.
    """

    names: Counter[str] = field(default_factory=Counter)
    stated: bool = False
    chosen: bool = False
    kinds: tuple[str, ...] = ()
    implied: tuple[str, ...] = ()


class Shapes:
    """Reads the shapes of the schemas within one root schema."""

    def __init__(self, root: Schema) -> None:
        """Begin with nothing read.

        Args:
            root: well-formed; references are into it.
        """
        self._root = root
        self._known: dict[int, Shape] = {}
        self._level = 0

    def of(self, schema: Any) -> Shape:
        """The shape of a schema; of one within a circle of references, without what leads back."""
        if not isinstance(schema, Mapping) or self._level > _DEEPEST:
            return Shape()
        if id(schema) not in self._known:
            self._known[id(schema)] = Shape()
            self._level += 1
            self._known[id(schema)] = self._read(schema)
            self._level -= 1
        return self._known[id(schema)]

    def _read(self, schema: Schema) -> Shape:
        names = Counter(dict.fromkeys(schema.get("properties", ()), 1))
        names.update(dict.fromkeys(schema.get("required", ()), 0))
        parts = [self.of(part) for part in self._together(schema)]
        for part in parts:
            names.update(part.names)
        choices = [[self.of(part) for part in schema[form]] for form in ("anyOf", "oneOf") if form in schema]
        for choice in choices:
            names.update({name: max(part.names[name] for part in choice) for part in choice for name in part.names})
            kinds = tuple(dict.fromkeys(kind for part in choice for kind in part.kinds))
            parts.append(Shape(kinds=kinds if all(part.kinds for part in choice) else ()))
        every = [*parts, *(part for choice in choices for part in choice)]
        return Shape(
            names,
            stated=any(keyword in schema for keyword in _STATED) or any(part.stated for part in every),
            chosen=bool(choices) or any(part.chosen for part in every),
            kinds=types_of(schema) or next((part.kinds for part in parts if part.kinds), ()),
            implied=implied(schema) or next((part.implied for part in every if part.implied), ()),
        )

    def _together(self, schema: Schema) -> Iterator[Any]:
        if "$ref" in schema:
            yield resolve(self._root, schema["$ref"])
        yield from schema.get("allOf", ())


def implied(schema: Schema) -> tuple[str, ...]:
    """The type that the keywords of a schema speak of, where it names none."""
    return next(((kind,) for kind, keywords in BY_TYPE.items() if any(key in schema for key in keywords)), ())
