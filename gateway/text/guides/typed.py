"""Rewrites constraints on values of one type for guides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.text.guides.combinations import Conjunct
from gateway.text.guides.guide import GuideBackend
from gateway.text.guides.keywords import CONSTRAINTS, NoValueError, Schema, constants, is_empty, unsupported
from gateway.text.guides.numbers import INMOST, bounds, common_step, contradiction, few_digits
from gateway.text.guides.patterns import INEXPRESSIBLE, STRING_FORMATS, are_disjoint, length_range, pattern_of, portable
from gateway.text.guides.references import followed

_MOST_REPEATS = 65_536  # that guides count
_MOST_PATTERNS = 100  # of one object, each compared with each


class TypedRewriter(ABC):
    """Rewrites the constraints of a schema on strings, numbers, arrays and objects."""

    def __init__(self, root: Schema, *, exact: bool, backend: GuideBackend | None) -> None:
        """Rewrite for one engine.

        Args:
            root: well-formed; references are into it.
            exact: whether keywords that guides do not have are rejected.
            backend: of the engine's guided decoding.
        """
        self.root = root
        self._exact = exact
        self.backend = backend

    @abstractmethod
    def schema(self, schema: Any, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite a schema, or a part of one, for guides.

        Args:
            schema: a well-formed schema.
            path: path of the schema in the request.
            within: its place among schemas that one value must fit; None where it stands alone.

        Raises:
            BadRequestError: with the path of a keyword that guides do not have.
            NoValueError: no value fits the schema.
        """

    def cannot(self, path: str, what: str) -> None:
        """Reject a keyword that guides do not have, where an answer must follow it."""
        if self._exact:
            raise unsupported(path, f"{what}. Guided decoding cannot enforce it; leave it out and check the answer")

    def lacks(self, path: str, what: str) -> None:
        """Reject a constraint with the most common reason."""
        self.cannot(path, f"{what} is not supported")

    def of_kind(self, schema: Schema, kind: str, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite the constraints on values of one type."""
        result: dict[str, Any] = {"type": kind}
        if kind == "object":
            result |= self._object(schema, path, within)
        elif kind == "array":
            result |= self._array(schema, path, within)
        elif kind == "string":
            result |= self._string(schema, path)
        elif kind in ("number", "integer"):
            result |= self._number(schema, path, integer=kind == "integer")
        return result

    def _number(self, schema: Schema, path: str, *, integer: bool) -> dict[str, Any]:
        result: dict[str, Any] = dict(bounds(schema))
        whole = [1] if integer else []
        keyword = contradiction(result, common_step(whole))
        if keyword is not None:
            raise NoValueError(f"{path}.{keyword}", "no number is between its bounds")
        for keyword, value in list(result.items()):
            if (value > INMOST and "inimum" in keyword) or (value < -INMOST and "aximum" in keyword):
                result.pop(keyword)
                self.lacks(f"{path}.{keyword}", "a bound beyond 10**17")
        if self.backend == "llguidance" and "multipleOf" in schema and not is_empty(schema, "multipleOf"):
            step = schema["multipleOf"]
            if not few_digits(step):
                self.lacks(f"{path}.multipleOf", "a step of more than nine digits")
            elif contradiction(result, common_step([*whole, step])) is None:
                result["multipleOf"] = step
            elif self._exact:
                raise NoValueError(f"{path}.multipleOf", "no multiple of the value is between the bounds")
        return result

    def _limits(self, schema: Schema, path: str, least: str, most: str) -> dict[str, int]:
        """Return a least and a greatest count; one that is farther out than guides count is narrowed."""
        result = {key: int(schema[key]) for key in (least, most) if key in schema}
        if result.get(least, 0) > _MOST_REPEATS:
            result.pop(least)
            self.cannot(f"{path}.{least}", f"a count above {_MOST_REPEATS} is not supported")
        if most in result:
            result[most] = min(result[most], _MOST_REPEATS)
            if result.get(least, 0) > result[most]:
                raise NoValueError(f"{path}.{least}", f"{least} is greater than {most}")
        return result

    def _string(self, schema: Schema, path: str) -> dict[str, Any]:
        """Rewrite the constraints on strings."""
        result: dict[str, Any] = self._limits(schema, path, "minLength", "maxLength")
        patterns = {key: found for key in ("pattern", "format") if (found := self._pattern(schema, key, path))}
        if self.backend == "llguidance":
            self._check_lengths(result, schema, patterns, path)
            if len(patterns) > 1:
                result["allOf"] = [{"type": "string", "pattern": patterns.pop("format")}]
            return result | {"pattern": each for each in patterns.values()}  # noqa: B035 - one at most
        if not patterns:
            return result
        keyword, *others = patterns
        for other in (*result, *others):
            self.lacks(f"{path}.{other}", f"{other!r} beside {keyword!r}")
        return {"pattern": patterns[keyword]}

    def _check_lengths(self, limits: dict[str, int], schema: Schema, patterns: Mapping[str, str], path: str) -> None:
        """Check lengths against those of pattern and format; drop them where a guide may be wider.

        Raises:
            NoValueError: no string has that length.
        """
        for keyword, pattern in patterns.items():
            form = STRING_FORMATS[schema["format"]] if keyword == "format" else None
            least, most = (form.least, form.most) if form else length_range(pattern)
            if limits.get("maxLength", least) < least:
                if self._exact:
                    reason = f"a string of this {keyword} has at least {least} characters"
                    raise NoValueError(f"{path}.maxLength", reason)
                del limits["maxLength"]
            if most is not None and limits.get("minLength", 0) > most:
                self.lacks(f"{path}.minLength", f"more than {most} characters of this {keyword}")
                del limits["minLength"]
        if len(patterns) > 1 and are_disjoint(*patterns.values()) and self._exact:
            raise NoValueError(f"{path}.pattern", "no string of this format matches the pattern")

    def _pattern(self, schema: Schema, keyword: str, path: str) -> str | None:
        """Return the pattern that a keyword stands for; an empty one has no meaning."""
        stated = schema.get(keyword)
        if not stated:
            return None
        if keyword == "format":
            if stated in INEXPRESSIBLE:
                self.lacks(f"{path}.format", f"the format {stated!r}")
            return pattern_of(stated)
        found = portable(stated)
        if found is None:
            self.cannot(f"{path}.pattern", "this regular expression is invalid or not supported")
        return found

    def _array(self, schema: Schema, path: str, within: Conjunct | None) -> dict[str, Any]:
        result: dict[str, Any] = self._limits(schema, path, "minItems", "maxItems")
        inside = None if within is None else Conjunct()
        first, keyword = schema.get("prefixItems", []), "prefixItems"
        rest, rest_path = schema.get("items", True), f"{path}.items"
        if isinstance(rest, list):  # before 2020-12
            first, keyword = rest, "items"
            rest, rest_path = schema.get("additionalItems", True), f"{path}.additionalItems"
        if first:
            result["prefixItems"] = [
                self.schema(part, f"{path}.{keyword}[{index}]", inside) for index, part in enumerate(first)
            ]
        result["items"] = self._or_false(rest, rest_path, inside, needed=result.get("minItems", 0) > len(first))
        return result

    def _object(self, schema: Schema, path: str, within: Conjunct | None) -> dict[str, Any]:
        members = _Members(*self._properties(schema, path, within), self._patterns(schema, path, within))
        members.rest = self._rest(schema, path, within)
        if self.backend == "llguidance" and len(members.patterns) < len(schema.get("patternProperties", ())):
            members.rest = None if within else True  # names that a pattern would allow that is left out
        self._limit_names(members, schema, path)
        required = list(schema.get("required", ()))
        if within is None:
            _require(members, required, schema, path)
        if members.rest is not False:
            self._exclude(members, path)
        limits = self._limits(schema, path, "minProperties", "maxProperties")
        result = members.guide() | ({"required": required} if required else {})
        if within is not None:
            return result | self._limits_beside(result, limits, path)
        uncounted = _counted(result, limits, path, any_choice=self.backend == "xgrammar")
        if uncounted is not None:
            self.lacks(f"{path}.{uncounted}", f"{uncounted!r} with optional properties")
        return result

    def _limits_beside(self, result: dict[str, Any], limits: dict[str, int], path: str) -> dict[str, int]:
        """Return the limits that are counted where other schemas name properties, too: whether there is one at all."""
        optional = result.get("properties", {}).keys() - set(result.get("required", ()))
        most = "maxProperties" in limits
        if optional and (most or limits.get("minProperties", 0) > 1):
            keyword = "maxProperties" if most else "minProperties"
            self.cannot(f"{path}.{keyword}", f"{keyword!r} over several schemas is not supported")
            return {}
        return limits

    def _properties(self, schema: Schema, path: str, within: Conjunct | None) -> tuple[dict[str, Any], list[str]]:
        """Rewrite the schemas of the properties; return them, and the names of those that no value fits."""
        found: dict[str, Any] = {}
        for name, part in schema.get("properties", {}).items():
            inside = within.inside(name) if within else None
            needed = name in schema.get("required", ()) and part is not False  # else the name is at fault, not the part
            found[name] = self._or_false(part, f"{path}.properties.{name}", inside, needed=needed)
        without = [name for name, part in found.items() if part is False]
        return {name: part for name, part in found.items() if part is not False}, without

    def _or_false(
        self, schema: Any, path: str, within: Conjunct | None, *, needed: bool = False
    ) -> dict[str, Any] | Literal[False]:
        """Rewrite a schema within; return False where no value fits it, unless one is needed."""
        try:
            return self.schema(schema, path, within)
        except NoValueError:
            if needed:
                raise
            return False

    def _patterns(self, schema: Schema, path: str, within: Conjunct | None) -> dict[str, Any]:
        """Rewrite ``patternProperties``, where the engine has them."""
        found: dict[str, Any] = {}
        if self.backend != "llguidance":
            return found
        for expression, part in schema.get("patternProperties", {}).items():
            here = f"{path}.patternProperties.{expression}"
            pattern = portable(expression)
            if pattern is None:
                self.cannot(here, "this regular expression is invalid or not supported")
            elif len(found) >= _MOST_PATTERNS:
                self.lacks(here, f"more than {_MOST_PATTERNS} patterns of names")
            elif not all(pattern == other or are_disjoint(pattern, other) for other in found):
                self.lacks(here, "a pattern of names that can match the same names as another pattern")
            else:
                found[pattern] = self._or_false(part, here, None if within is None else Conjunct())
        return found

    def _rest(self, schema: Schema, path: str, within: Conjunct | None) -> dict[str, Any] | bool | None:
        """Rewrite the schema of further properties; None where other schemas have it."""
        keyword = "additionalProperties"
        if keyword not in schema and within is None and "unevaluatedProperties" in schema:
            keyword = "unevaluatedProperties"
        if keyword not in schema:
            named = {*schema.get("properties", ()), *schema.get("required", ())}
            closed = not {"properties", "patternProperties"}.isdisjoint(schema)
            return None if within else not closed or schema.get("minProperties", 0) > len(named)
        if isinstance(schema[keyword], bool):
            return bool(schema[keyword])
        return self._or_false(schema[keyword], f"{path}.{keyword}", None if within is None else Conjunct())

    def _limit_names(self, members: _Members, schema: Schema, path: str) -> None:
        """Apply ``propertyNames``: a list of names, or a pattern of all of them."""
        names = followed(self.root, schema.get("propertyNames", True))
        if names in (True, {}) or (isinstance(names, Mapping) and names.keys() & CONSTRAINTS == {"type"}):
            return
        rest = True if members.rest is None else members.rest
        keywords = names.keys() & CONSTRAINTS - {"type"} if isinstance(names, Mapping) else set()
        if names is False or keywords in ({"enum"}, {"const"}):
            allowed = constants(names) if names else ()
            members.limit([name for name in allowed or () if isinstance(name, str)])
        elif keywords == {"pattern"} and self.backend == "llguidance" and not (members.properties or members.patterns):
            members.patterns = {portable(names["pattern"]) or "": rest}
            if "" in members.patterns:
                self.cannot(f"{path}.propertyNames.pattern", "this regular expression is invalid or not supported")
            members.rest = False
        else:
            self.lacks(f"{path}.propertyNames", "'propertyNames' with this value")

    def _exclude(self, members: _Members, path: str) -> None:
        """Forbid names that no value fits, though others may be added."""
        for name in members.without:
            if self.backend == "llguidance":
                members.properties[name] = False
            else:
                what = "a forbidden property name with additional properties"
                self.lacks(f"{path}.properties.{name}", what)


@dataclass
class _Members:
    """The properties that an object may have.

    Attributes:
        properties: schemas by name.
        without: names of properties that no value fits.
        patterns: schemas by the pattern of names.
        rest: of further properties; None where other schemas have it.
    """

    properties: dict[str, Any]
    without: list[str]
    patterns: dict[str, Any]
    rest: dict[str, Any] | bool | None = None

    def limit(self, names: Sequence[str]) -> None:
        """Allow these names only."""
        rest = True if self.rest is None else self.rest
        every = dict(self.properties)
        if rest is not False:
            every |= {name: {} if rest is True else rest for name in names if name not in self.properties}
        self.properties = {name: part for name, part in every.items() if name in names and name not in self.without}
        self.patterns, self.rest = {}, False

    def guide(self) -> dict[str, Any]:
        """Write them as a schema of the engine."""
        result: dict[str, Any] = {"properties": self.properties} if self.properties else {}
        if self.patterns:
            result["patternProperties"] = self.patterns
        return result if self.rest is None else result | {"additionalProperties": self.rest}


def _require(members: _Members, required: Sequence[str], schema: Schema, path: str) -> None:
    """Give each required property a schema.

    Raises:
        NoValueError: one that is not allowed is required.
    """
    stated = not {"additionalProperties", "unevaluatedProperties", "propertyNames"}.isdisjoint(schema)
    for index, name in enumerate(required):
        if name in members.properties:
            continue
        closed = stated and members.rest is False
        if name in members.without or (closed and not members.patterns):
            raise NoValueError(f"{path}.required[{index}]", f"{name[:64]!r} is required and not allowed")
        if not (stated and members.patterns):
            members.properties[name] = members.rest if isinstance(members.rest, dict) else {}


def _counted(guide: dict[str, Any], limits: Mapping[str, int], path: str, *, any_choice: bool) -> str | None:
    """Add ``minProperties`` and ``maxProperties`` to the guide of an object, in the forms that engines count in.

    Args:
        guide: of the other keywords; changed in place.
        limits: ``minProperties`` and ``maxProperties``, where the schema has them.
        path: of the schema.
        any_choice: whether the engine counts with any number of names left to choose. llguidance counts one property
            of those that are named, or any number where the named ones are all required.

    Returns:
        The keyword that the engine cannot count by, and which is left out; None where none is.

    Raises:
        NoValueError: no object has that number.
    """
    required = set(guide.get("required", ()))
    named = guide.get("properties", {})
    closed = guide.get("additionalProperties") is False and "patternProperties" not in guide
    least, most = limits.get("minProperties", 0), limits.get("maxProperties")
    if (closed and least > len(named)) or (most is not None and max(least, len(required)) > most):
        raise NoValueError(f"{path}.{'minProperties' if most is None else 'maxProperties'}")
    if most is not None and most == len(required):
        guide.pop("patternProperties", None)
        guide["properties"] = {name: part for name, part in named.items() if name in required}
        guide["additionalProperties"] = False
        if not guide["properties"]:
            del guide["properties"]
        return None
    needed = {"minProperties": least} if least > len(required) else {}
    if most is not None and not (closed and most >= len(named)):
        needed["maxProperties"] = most
    optional = [name for name in named if name not in required]
    if needed and optional and not any_choice and not (closed and _one_choice(needed, len(required))):
        return next(iter(needed))
    guide |= needed
    return None


def _one_choice(limits: dict[str, int], required: int) -> bool:
    return limits.get("minProperties", 0) <= required + 1 and limits.get("maxProperties", required + 1) == required + 1
