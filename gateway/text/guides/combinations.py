"""Schemas that one value must fit together: the place of each, and combinations without a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from gateway.text.guides.keywords import Schema, constants, implied, is_of, same, types_of
from gateway.text.guides.numbers import common_step, contradiction
from gateway.text.guides.patterns import PatternMatcher, are_disjoint, length_range
from gateway.text.guides.references import followed, resolve

_DEEPEST = 50  # references, combinations and properties within each other; Python's own limit is not far
_MOST_COMPARISONS = 50_000  # some 0.3 s: 300 schemas, each compared with each
_MOST_STEPS = 20_000  # about a second
_STATED = ("additionalProperties", "patternProperties", "propertyNames")
_COUNTS = (
    ("minLength", "maxLength", "string"),
    ("minItems", "maxItems", "array"),
    ("minProperties", "maxProperties", "object"),
)

Fault = Literal["overlap", "contradiction"]


@dataclass(frozen=True, slots=True)
class Conjunct:
    """The place of a schema among schemas that one value must fit.

    Attributes:
        kinds: types that the others leave; none where they leave all.
        shared: properties that more than one of them names; None for any.
        required: properties that the others require.
    """

    kinds: tuple[str, ...] = ()
    shared: frozenset[str] | None = None
    required: frozenset[str] = frozenset()

    def inside(self, name: str) -> Conjunct | None:
        """The place of a property's schema; None where it stands alone."""
        return Conjunct() if self.shared is None or name in self.shared else None

    def narrowed(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """The types that are left; the schema's own types where none is left."""
        if not kinds or not self.kinds:
            return kinds or self.kinds
        left = [kind for kind in kinds if kind in self.kinds or (kind == "integer" and "number" in self.kinds)]
        return (*left, *(["integer"] if "number" in kinds and "integer" in self.kinds else [])) or kinds


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """The properties and types of a schema and of all schemas that its value must also fit.

    Attributes:
        names: properties, and for each the number of schemas that have one for it.
        stated: whether one of them has a keyword for further properties.
        chosen: whether one of them is a choice among schemas.
        kinds: the types that they name.
        implied: the type that their keywords are about.
    """

    names: Counter[str] = field(default_factory=Counter)
    stated: bool = False
    chosen: bool = False
    kinds: tuple[str, ...] = ()
    implied: tuple[str, ...] = ()


class ObjectShapes:
    """Finds the shapes of the schemas within one well-formed root."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[int, ObjectShape] = {}
        self._level = 0

    def of(self, schema: Any) -> ObjectShape:
        """Find the shape of a schema; a reference that leads back into it adds nothing."""
        if not isinstance(schema, Mapping) or self._level > _DEEPEST:
            return ObjectShape()
        if id(schema) not in self._known:
            self._known[id(schema)] = ObjectShape()
            self._level += 1
            self._known[id(schema)] = self._read(schema)
            self._level -= 1
        return self._known[id(schema)]

    def _read(self, schema: Schema) -> ObjectShape:
        names = Counter(dict.fromkeys(schema.get("properties", ()), 1))
        names.update(dict.fromkeys(schema.get("required", ()), 0))
        target = [resolve(self._root, schema["$ref"])] if "$ref" in schema else []
        parts = [self.of(part) for part in (*target, *schema.get("allOf", ()))]
        for part in parts:
            names.update(part.names)
        choices = [[self.of(part) for part in schema[form]] for form in ("anyOf", "oneOf") if form in schema]
        for choice in choices:
            names.update({name: max(part.names[name] for part in choice) for part in choice for name in part.names})
            kinds = tuple(dict.fromkeys(kind for part in choice for kind in part.kinds))
            parts.append(ObjectShape(kinds=kinds if all(part.kinds for part in choice) else ()))
        every = [*parts, *(part for choice in choices for part in choice)]
        return ObjectShape(
            names,
            stated=any(keyword in schema for keyword in _STATED) or any(part.stated for part in every),
            chosen=bool(choices) or any(part.chosen for part in every),
            kinds=types_of(schema) or next((part.kinds for part in parts if part.kinds), ()),
            implied=implied(schema) or next((part.implied for part in every if part.implied), ()),
        )


class Disjointness:
    """Proves that no value fits two schemas within one root, by types, constants and properties.

    The root is well-formed; the work for all of it is bounded.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_COMPARISONS

    def all(self, schemas: Sequence[Any], *, closed: bool, beside: Conjunct) -> bool:
        """Tell whether each two of the schemas are provably disjoint; then ``oneOf`` is ``anyOf``.

        Args:
            schemas: well-formed schemas.
            closed: whether answers only have the properties that their schema names, where it leaves that open.
            beside: the place of the schemas among others.
        """
        return all(
            self._two(one, other, 0, beside) or (closed and self._lacks(one, other) and self._lacks(other, one))
            for one, other in combinations(schemas, 2)
        )

    def _lacks(self, one: Any, other: Any) -> bool:
        """Tell whether objects of ``one`` with no properties but the named ones lack one that ``other`` requires."""
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
        # Quicker than with Mapping.
        if not isinstance(one, dict) or not isinstance(other, dict) or level > _DEEPEST:
            return False
        self._left -= 1
        return self._left >= 0 and (
            self._choice(one, other, level, beside)
            or self._choice(other, one, level, beside)
            or self._plain(one, other, level, beside)
        )

    def _choice(self, choice: Schema, other: Schema, level: int, beside: Conjunct) -> bool:
        """Tell whether ``choice`` is among schemas each of which excludes the other."""
        return any(
            form in choice and all(self._two(part, other, level + 1, beside) for part in choice[form])
            for form in ("anyOf", "oneOf")
        )

    def _plain(self, one: Schema, other: Schema, level: int, beside: Conjunct) -> bool:
        values, others = constants(one), constants(other)
        if values is not None and others is not None:
            self._left -= len(values) * len(others)
            return self._left >= 0 and not any(same(value, each) for value in values for each in others)
        if values is not None or others is not None:
            given, types = (values, types_of(other)) if values is not None else (others, types_of(one))
            return bool(types) and not any(is_of(value, kind) for value in given or () for kind in types)
        if _types_differ(one, other):
            return True
        # Guides give a schema without a type the one that its keywords are about.
        objects = all((types_of(each) or beside.kinds or implied(each)) == ("object",) for each in (one, other))
        return objects and self._exclusive(one, other, level, beside)

    def _exclusive(self, one: Schema, other: Schema, level: int, beside: Conjunct) -> bool:
        """Tell whether a property that one of the objects must have cannot be the other's, too."""
        shared = {*one.get("required", ()), *other.get("required", ()), *beside.required}
        properties, other_properties = one.get("properties", {}), other.get("properties", {})
        self._left -= len(shared)
        if _forbids(one, other) or _forbids(other, one):
            return True
        return any(
            name in properties
            and name in other_properties
            and self._two(properties[name], other_properties[name], level + 1, Conjunct())
            for name in shared
        )


class Contradictions:
    """Finds faults of guides that one value must fit, which llguidance would reject.

    Beyond a bound on the work for all of a request it finds no faults.
    """

    def __init__(self, definitions: Mapping[str, Schema], matcher: PatternMatcher) -> None:
        """Read the definitions of the guides as far as they are written, and match constants with patterns."""
        self._definitions = definitions
        self._matcher = matcher
        self._left = _MOST_STEPS

    def fault(self, guides: Sequence[Any], level: int = 0) -> Fault | None:
        """Return the fault for which the engine would reject the guides, or None."""
        if level > _DEEPEST or self._left < 0:
            return None
        plain, choices = self._flat(guides)
        if self._left < 0:
            return None
        if False in guides or self._types_disjoint(plain) or self._constants_disjoint(plain):
            return "contradiction"
        patterns = list(dict.fromkeys(name for guide in plain for name in guide.get("patternProperties", ())))
        self._left -= len(patterns) ** 2
        if self._left >= 0 and not all(are_disjoint(*two) for two in combinations(patterns, 2)):
            return "overlap"
        return self._fault_within(plain, level) or self._fault_of_choices(plain, choices, level)

    def _flat(self, guides: Sequence[Any]) -> tuple[list[Schema], list[Sequence[Any]]]:
        """Return the guides without combinations and references, and the choices among guides."""
        plain: list[Schema] = []
        choices: list[Sequence[Any]] = []
        waiting, seen = [guide for guide in guides if isinstance(guide, Mapping)], set()
        while waiting and self._left >= 0:
            self._left -= 1
            guide = waiting.pop(0)
            name = guide.get("$ref", "").removeprefix("#/$defs/")
            if name in self._definitions and name not in seen:
                seen.add(name)
                waiting.append(self._definitions[name])
            waiting += guide.get("allOf", ())
            if "anyOf" in guide:
                choices.append(guide["anyOf"])
            plain.append(guide)
        return plain, choices

    def _fault_within(self, plain: Sequence[Schema], level: int) -> Fault | None:
        """Return the fault of a property; one that may be left out is left out where no value fits it."""
        required = {name for guide in plain for name in guide.get("required", ())}
        parts: dict[str, list[Any]] = {}
        for guide in plain:
            for name, part in guide.get("properties", {}).items():
                parts.setdefault(name, []).append(part)
        for name, together in parts.items():
            if len(together) > 1 or "allOf" in together[0]:
                found = self.fault(together, level + 1)
                if found == "overlap" or (found and name in required):
                    return found
        return None

    def _fault_of_choices(self, plain: Sequence[Schema], choices: Sequence[Sequence[Any]], level: int) -> Fault | None:
        """Return the fault of the choices, each by itself beside the guides without it."""
        forms = ("$ref", "allOf", "anyOf")
        beside = [{key: part for key, part in guide.items() if key not in forms} for guide in plain]
        for choice in choices:
            found = [self.fault([*beside, part], level + 1) for part in choice]
            if "overlap" in found:
                return "overlap"
            if all(found):
                return "contradiction"
        return None

    def _types_disjoint(self, plain: Sequence[Schema]) -> bool:
        """Tell whether types, bounds, counts or patterns leave no value."""
        kinds: set[str] | None = None
        for guide in plain:
            if stated := _kinds(guide):
                kinds = stated if kinds is None else kinds & stated
        if kinds is None:
            return False
        numbers, strings = kinds <= {"number", "integer"}, kinds == {"string"}
        if not kinds or (numbers and _numbers_disjoint(plain, integer=kinds == {"integer"})):
            return True
        for lower, upper, kind in _COUNTS:
            least, most = _ends(plain, lower, upper)
            if kinds == {kind} and most is not None and least > most:
                return True
        return strings and self._patterns_disjoint(plain)

    def _patterns_disjoint(self, plain: Sequence[Schema]) -> bool:
        patterns = {guide["pattern"] for guide in plain if "pattern" in guide}
        self._left -= len(patterns) ** 2
        if self._left < 0:
            return False
        least, most = _ends(plain, "minLength", "maxLength")
        for pattern in patterns:
            shortest, longest = length_range(pattern)
            if (most is not None and shortest > most) or (longest is not None and longest < least):
                return True
        return any(are_disjoint(*two) for two in combinations(sorted(patterns), 2))

    def _constants_disjoint(self, plain: Sequence[Schema]) -> bool:
        """Tell whether no constant is in all lists of them and fits the rest."""
        lists = [values for guide in plain if (values := constants(guide)) is not None]
        if not lists:
            return False
        values, *others = lists
        self._left -= len(values) * (sum(map(len, others)) + len(plain))
        if self._left < 0:
            return False
        return not any(
            all(any(same(value, each) for each in other) for other in others)
            and all(self._fits(value, guide) for guide in plain)
            for value in values
        )

    def _fits(self, value: Any, guide: Schema) -> bool:
        """Tell whether a constant may fit a guide that has no combinations."""
        kinds = types_of(guide)
        if kinds and not any(is_of(value, kind) for kind in kinds):
            return False
        if isinstance(value, str):
            pattern = guide.get("pattern")
            if pattern is not None and self._matcher.fits(pattern, value) is False:
                return False
            return bool(guide.get("minLength", 0) <= len(value) <= guide.get("maxLength", len(value)))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return not _numbers_disjoint([guide, {"minimum": value, "maximum": value}], integer=False)
        return True


def _closable(schema: Schema) -> bool:
    """Tell whether the guide of an object has no properties but those that the schema names."""
    further = ("patternProperties", "propertyNames", "minProperties", "$ref", "allOf", "anyOf", "oneOf")
    return (
        "properties" in schema
        and schema.get("additionalProperties", False) is False
        and not any(keyword in schema for keyword in further)
    )


def _forbids(one: Schema, other: Schema) -> bool:
    """Tell whether ``one`` forbids its objects further properties, of which ``other`` requires one."""
    if not _closable(one) or "additionalProperties" not in one:
        return False
    return any(name not in one["properties"] for name in other.get("required", ()))


def _types_differ(one: Schema, other: Schema) -> bool:
    kinds, others = _kinds(one), _kinds(other)
    return bool(kinds and others) and kinds.isdisjoint(others)


def _kinds(schema: Schema) -> set[str]:
    """Return the types that a schema names, integers among numbers."""
    kinds = set(types_of(schema))
    return kinds | {"integer"} if "number" in kinds else kinds


def _numbers_disjoint(plain: Sequence[Schema], *, integer: bool) -> bool:
    found: dict[str, Any] = {}
    for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if stated := [guide[keyword] for guide in plain if keyword in guide]:
            found[keyword] = max(stated) if "inimum" in keyword else min(stated)
    steps = [guide["multipleOf"] for guide in plain if "multipleOf" in guide]
    return contradiction(found, common_step([*steps, *([1] if integer else [])])) is not None


def _ends(plain: Sequence[Schema], least: str, most: str) -> tuple[int, int | None]:
    """Return the greatest of the least counts, and the least of the greatest ones."""
    greatest = [guide[most] for guide in plain if most in guide]
    return max((guide.get(least, 0) for guide in plain), default=0), min(greatest, default=None)
