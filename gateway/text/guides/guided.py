"""Rewrites a request's schema for guided decoding, so that only fitting values can be generated.

xgrammar 0.1.25 ignores keywords that it does not have, and keywords beside ``$ref``, ``enum``, ``anyOf`` or
``pattern``; llguidance rejects keywords that it does not have, but only when it has the request. So a schema is
rewritten into a form that the engine's backend enforces, and a keyword without that form is rejected by its path.

Where a schema leaves open whether an object may have more properties, the guide has no more than it names: a model that
may go on with any key tends to.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gateway.text.guides.checked import FittingConstants
from gateway.text.guides.combinations import Conjunct, Contradictions, Disjointness, ObjectShapes
from gateway.text.guides.guide import GuideBackend
from gateway.text.guides.keywords import (
    BY_TYPE,
    CONSTRAINTS,
    NoValueError,
    Schema,
    constants,
    implied,
    is_empty,
    is_of,
    never,
    types_of,
)
from gateway.text.guides.numbers import is_exact
from gateway.text.guides.patterns import PatternMatcher, portable
from gateway.text.guides.references import endless, localized, resolve
from gateway.text.guides.typed import TypedRewriter

_FORMS = ("$ref", "anyOf", "oneOf", "allOf")
_OF_TYPES = frozenset(keyword for keywords in BY_TYPE.values() for keyword in keywords)
_DEEPEST = 24  # schemas within each other while references are followed; each takes ten calls of Python's thousand
_SAFE_NAME = re.compile(r"[\w.-]{1,100}", re.ASCII)


def guided_schema(schema: Schema, param: str, *, exact: bool, backend: GuideBackend | None = None) -> dict[str, Any]:
    """Rewrite a schema for the engine's backend.

    Args:
        schema: well-formed.
        param: path of it in the request.
        exact: whether an answer must follow every keyword; otherwise those that guides do not have are left out, which
            only widens the guide.
        backend: of the engine's guided decoding; None where it declares none: the guide is one that both enforce.

    Raises:
        BadRequestError: with the path of a keyword that guides do not have (only with ``exact``), or of a schema
            that no value fits.
    """
    return _Rewriter(localized(schema), param, exact=exact, backend=backend).top(param)


class _Rewriter(TypedRewriter):
    """Rewrites references, constants and combinations of schemas; the base rewrites constraints on one type."""

    def __init__(self, root: Schema, param: str, *, exact: bool, backend: GuideBackend | None) -> None:
        super().__init__(root, exact=exact, backend=backend)
        self._never = never(backend)
        self._shapes = ObjectShapes(root)
        self._disjointness = Disjointness(root)
        self._constants = FittingConstants(root, param)
        self._matcher = PatternMatcher()
        self._endless = endless(root) if exact else frozenset()
        self._definitions: dict[str, dict[str, Any]] = {}
        self._faults = Contradictions(self._definitions, self._matcher)
        self._names: dict[tuple[str, Conjunct | None], str] = {}  # of references, by their place
        self._begun: set[str] = set()  # definitions that are being rewritten, by name
        self._waiting: list[tuple[str, str, str]] = []  # name, reference and path of those that are put off
        self._level = 0

    def top(self, param: str) -> dict[str, Any]:
        """Rewrite the root, with the definitions that it refers to."""
        result = self.schema(self.root, param, None)
        while self._waiting:
            name, reference, path = self._waiting.pop(0)
            self._definitions[name] = self.schema(resolve(self.root, reference), path, None)
        while result.keys() == {"$ref"}:  # the top level gets the reference's target
            result = self._definitions[result["$ref"].rpartition("/")[2]]
        return {**result, "$defs": self._definitions} if self._definitions else result

    def schema(self, schema: Any, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite a schema; see the base."""
        if schema is True:
            return {}
        if schema is False:
            raise NoValueError(path)
        self._level += 1
        try:
            return self._any(schema, path, within)
        finally:
            self._level -= 1

    def _any(self, schema: Schema, path: str, within: Conjunct | None) -> dict[str, Any]:
        forms = [form for form in _FORMS if form in schema]
        for keyword in schema:
            if keyword in self._never and not is_empty(schema, keyword):
                what = f"{keyword!r} is not a keyword that this engine supports"
                self.cannot(f"{path}.{keyword}", what)
        self._check_unevaluated(schema, forms, path, within)
        if "const" in schema or "enum" in schema:
            return self._values(schema, path, within)
        if not forms:
            return self._typed(schema, path, within)
        beside = self._beside(schema, forms)
        several = len(schema.get("allOf", ())) > 1
        if (beside or several) and self.backend == "llguidance":
            try:
                return self._together(schema, forms, path, within)
            except NoValueError:
                if self._exact or within is not None:
                    raise
                return _of_types(self._shapes.of(schema).kinds or self._shapes.of(schema).implied)
        if several:
            self.lacks(f"{path}.allOf", "'allOf' of more than one schema")
        for keyword in beside:
            self.lacks(f"{path}.{keyword}", f"{keyword!r} beside {forms[0]!r}")
        return self._form(schema, forms[0], path, within)

    def _check_unevaluated(self, schema: Schema, forms: list[str], path: str, within: Conjunct | None) -> None:
        """Reject ``unevaluatedProperties`` where the guide cannot determine the evaluated properties."""
        stated = schema.get("unevaluatedProperties", True)
        if stated is True or stated == {} or not (forms or within):
            return
        shape = self._shapes.of(schema)
        if stated is not False or within or shape.chosen or shape.stated or self.backend != "llguidance":
            what = "'unevaluatedProperties' is only supported with plain properties"
            self.cannot(f"{path}.unevaluatedProperties", what)

    def _beside(self, schema: Schema, forms: list[str]) -> list[str]:
        """List the keywords that must hold in addition to the first form, in their order."""
        found = forms[1:] + [key for key in schema if key in _OF_TYPES and key != "unevaluatedProperties"]
        kinds = set(types_of(schema))
        if kinds:
            parts = [schema[forms[0]]] if forms[0] == "$ref" else schema[forms[0]]
            targets = [resolve(self.root, part) if isinstance(part, str) else part for part in parts]
            each = [set(self._shapes.of(part).kinds) for part in targets]
            if not all(found and found <= kinds for found in each):
                found.append("type")
        return found

    def _together(self, schema: Schema, forms: list[str], path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite schemas that a value must fit together, of which llguidance makes one."""
        shape = self._shapes.of(schema)
        outer = within or Conjunct()
        kinds = outer.narrowed(shape.kinds or shape.implied)
        shared = None
        if not shape.stated and (within is None or within.shared is not None):
            several = {name for name, count in shape.names.items() if count > 1}
            shared = frozenset(several | (within.shared or frozenset() if within else frozenset()))
        inner = Conjunct(kinds, shared, outer.required | set(schema.get("required", ())))
        kind = _of_types(kinds)
        parts: list[dict[str, Any]] = []
        if within is None and shape.names and not shape.stated and schema.get("minProperties", 0) <= len(shape.names):
            properties: dict[str, Any] = {name: {} for name in shape.names}
            parts.append({**kind, "properties": properties, "additionalProperties": False})
        if _OF_TYPES & schema.keys():
            parts.append(self._typed(schema, path, inner))
        for form in forms:
            if form == "allOf":
                parts += [self.schema(part, f"{path}.allOf[{place}]", inner) for place, part in enumerate(schema[form])]
            else:
                parts.append(self._form(schema, form, path, inner))
        if within is None:
            fault = self._faults.fault(parts)
            if fault == "overlap":
                what = "patterns of names that can match the same name are not supported"
                self.cannot(f"{path}.{forms[0]}", what)
            if fault:
                raise NoValueError(f"{path}.{forms[0]}", "no value matches all of these schemas")
        return {**kind, "allOf": parts}

    def _form(self, schema: Schema, form: str, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite one reference or combination by itself."""
        if form == "$ref":
            return self._reference(schema["$ref"], f"{path}.$ref", within)
        parts, path = schema[form], f"{path}.{form}"
        if form == "allOf" and len(parts) > 1:
            return {}  # only where a guide need not be exact
        beside = within or Conjunct()
        if form == "oneOf" and not self._disjointness.all(parts, closed=within is None, beside=beside):
            self.lacks(path, "'oneOf' with schemas that can match the same value")
        return _alternatives(self.schema, ((part, f"{path}[{place}]", within) for place, part in enumerate(parts)))

    def _reference(self, reference: str, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite a reference into the definitions of the guide, which has only those that are referred to."""
        if reference in self._endless:
            raise NoValueError(path, "the schema that it refers to requires itself, so that no finite value matches")
        if reference == "#" and within is None:
            return {"$ref": "#"}
        key = (reference, within)
        if key not in self._names:
            name = self._names[key] = self._free_name(reference if within is None else "")
            self._definitions[name] = {}  # taken, for references within
            if self._level <= _DEEPEST:
                self._define(name, reference, path, within)
            elif within is None:
                self._waiting.append((name, reference, path))
            else:
                self.cannot(path, "a reference that is nested so deeply cannot have other constraints")
        elif within is not None and self._names[key] in self._begun:
            self.cannot(path, "a reference to an enclosing schema cannot have other constraints")
            return {}
        return {"$ref": f"#/$defs/{self._names[key]}"}

    def _define(self, name: str, reference: str, path: str, within: Conjunct | None) -> None:
        self._begun.add(name)
        self._definitions[name] = self.schema(resolve(self.root, reference), path, within)
        self._begun.discard(name)

    def _free_name(self, reference: str) -> str:
        """Choose the name of a definition: the client's own where engines read it alike, else another."""
        own = reference.rpartition("/")[2] if reference.startswith(("#/$defs/", "#/definitions/")) else ""
        if own not in self._definitions and reference.count("/") == 2 and _SAFE_NAME.fullmatch(own):
            return own
        taken = {*self._definitions, *self.root.get("$defs", {}), *self.root.get("definitions", {})}
        return next(name for name in (f"part{number}" for number in itertools.count()) if name not in taken)

    def _values(self, schema: Schema, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite constants: those that fit the keywords beside them."""
        form = "const" if "const" in schema else "enum"
        values = list(constants(schema) or ())
        beside = {key: schema[key] for key in schema if key in CONSTRAINTS and key != form}
        beside.pop("pattern", None)
        for kinds in (types_of(schema), within.kinds if within else ()):
            values = [value for value in values if not kinds or any(is_of(value, kind) for kind in kinds)]
        if values and beside.keys() - {"type"}:
            values = self._constants.that_fit(beside, values, path)
        if "pattern" in schema:
            values = self._matching(values, schema["pattern"], path)
        if not values:
            raise NoValueError(f"{path}.{form}", "no constant matches the other keywords")
        if self.backend != "xgrammar" and not all(map(is_exact, values)):
            self.lacks(f"{path}.{form}", "an integer that a double cannot hold, or beyond 2**62,")
        return {"const": values[0]} if len(values) == 1 else {"enum": values}

    def _matching(self, values: list[Any], stated: str, path: str) -> list[Any]:
        """Return the constants that fit a pattern or are not strings."""
        pattern = portable(stated)
        fitting = [
            not isinstance(value, str) or (None if pattern is None else self._matcher.fits(pattern, value))
            for value in values
        ]
        if None in fitting:
            self.cannot(f"{path}.pattern", "this regular expression cannot be matched with constants")
        found = [value for value, fits in zip(values, fitting, strict=True) if fits is not False]
        return found if found or self._exact else values

    def _typed(self, schema: Schema, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite the constraints on types of a schema without forms."""
        kinds = (within or Conjunct()).narrowed(types_of(schema)) or implied(schema)
        if not kinds:
            return {}
        if "number" in kinds:
            kinds = tuple(kind for kind in kinds if kind != "integer")
        return _alternatives(self.of_kind, ((schema, kind, path, within) for kind in kinds))


def _alternatives(rewrite: Callable[..., dict[str, Any]], schemas: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    """Rewrite a choice, without the schemas that no value fits; raise the first one's NoValueError where all are so."""
    made: list[dict[str, Any]] = []
    failure: NoValueError | None = None
    for arguments in schemas:
        try:
            made.append(rewrite(*arguments))
        except NoValueError as error:  # noqa: PERF203 - one a schema
            failure = failure or error
    if failure is not None and not made:
        raise failure
    return made[0] if len(made) == 1 else {"anyOf": made}


def _of_types(kinds: Sequence[str]) -> dict[str, Any]:
    """Make the guide of any value of these types; of all where there are none."""
    return {"type": kinds[0] if len(kinds) == 1 else list(kinds)} if kinds else {}
