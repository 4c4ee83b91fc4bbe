"""Guides that one value must fit together: whether llguidance, which makes one of them, would find that none does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

from gateway.openai.schemas.bounds import common_step, contradiction
from gateway.openai.schemas.patterns import Matcher, are_disjoint, fewest
from gateway.openai.schemas.walk import is_of, same, types_of

Guide = Mapping[str, Any]
Fault = Literal["overlap", "contradiction"]

_DEEPEST = 12
_MOST_STEPS = 20_000  # some second
_COUNTS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))


class Together:
    """Finds faults of guides that are sent together, with a bound on the work; what is beyond it has none."""

    def __init__(self, definitions: Mapping[str, Guide], matcher: Matcher) -> None:
        """Begin with nothing compared.

        Args:
            definitions: of the guides, as far as they are written.
            matcher: of constants with patterns.
        """
        self._definitions = definitions
        self._matcher = matcher
        self._left = _MOST_STEPS

    def fault(self, guides: Sequence[Any], level: int = 0) -> Fault | None:
        """What the engine would refuse of guides that one value must fit; None where nothing is found."""
        if level > _DEEPEST or self._left < 0:
            return None
        plain, choices = self._flat(guides)
        if self._left < 0:
            return None
        if False in guides or self._typed_apart(plain) or self._constants_apart(plain):
            return "contradiction"
        patterns = list(dict.fromkeys(name for guide in plain for name in guide.get("patternProperties", ())))
        self._left -= len(patterns) ** 2
        if self._left >= 0 and not all(are_disjoint(*two) for two in combinations(patterns, 2)):
            return "overlap"
        return self._fault_within(plain, level) or self._fault_of_choices(plain, choices, level)

    def _flat(self, guides: Sequence[Any]) -> tuple[list[Guide], list[Sequence[Any]]]:
        """The guides without combinations and references, and the choices among guides."""
        plain: list[Guide] = []
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

    def _fault_within(self, plain: Sequence[Guide], level: int) -> Fault | None:
        """The fault of a property; one that may be left out is, where nothing fits it."""
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

    def _fault_of_choices(self, plain: Sequence[Guide], choices: Sequence[Sequence[Any]], level: int) -> Fault | None:
        """The fault of the choices, each by itself beside what is no choice."""
        beside = [
            {key: part for key, part in guide.items() if key not in ("$ref", "allOf", "anyOf")} for guide in plain
        ]
        for choice in choices:
            found = [self.fault([*beside, part], level + 1) for part in choice]
            if "overlap" in found:
                return "overlap"
            if all(found):
                return "contradiction"
        return None

    def _typed_apart(self, plain: Sequence[Guide]) -> bool:
        """Whether types, bounds, counts or patterns leave nothing."""
        kinds: set[str] | None = None
        for guide in plain:
            if stated := set(types_of(guide)):
                stated |= {"integer"} if "number" in stated else set()
                kinds = stated if kinds is None else kinds & stated
        if kinds is None:
            return False
        numbers, strings = kinds <= {"number", "integer"}, kinds == {"string"}
        if not kinds or (numbers and _numbers_apart(plain, integer=kinds == {"integer"})):
            return True
        counted = {("minLength", "maxLength"): strings, ("minItems", "maxItems"): kinds == {"array"}}
        for pair in _COUNTS:
            least, most = _ends(plain, *pair)
            if counted.get(pair, kinds == {"object"}) and most is not None and least > most:
                return True
        return strings and self._patterns_apart(plain)

    def _patterns_apart(self, plain: Sequence[Guide]) -> bool:
        patterns = {guide["pattern"] for guide in plain if "pattern" in guide}
        self._left -= len(patterns) ** 2
        if self._left < 0:
            return False
        least, most = _ends(plain, "minLength", "maxLength")
        for pattern in patterns:
            fewer, longest = fewest(pattern)
            if (most is not None and fewer > most) or (longest is not None and longest < least):
                return True
        return any(are_disjoint(*two) for two in combinations(sorted(patterns), 2))

    def _constants_apart(self, plain: Sequence[Guide]) -> bool:
        """Whether none of the constants is one of all lists of them and fits the rest."""
        lists = [
            [guide["const"]] if "const" in guide else guide["enum"]
            for guide in plain
            if {"const", "enum"} & guide.keys()
        ]
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

    def _fits(self, value: Any, guide: Guide) -> bool:
        """Whether a constant may fit a guide that has no combinations."""
        kinds = types_of(guide)
        if kinds and not any(is_of(value, kind) for kind in kinds):
            return False
        if isinstance(value, str):
            pattern = guide.get("pattern")
            if pattern is not None and self._matcher.fits(pattern, value) is False:
                return False
            return bool(guide.get("minLength", 0) <= len(value) <= guide.get("maxLength", len(value)))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return not _numbers_apart([guide, {"minimum": value, "maximum": value}], integer=False)
        return True


def _numbers_apart(plain: Sequence[Guide], *, integer: bool) -> bool:
    found = {
        keyword: choose(guide[keyword] for guide in plain if keyword in guide)
        for keyword, choose in (
            ("minimum", max),
            ("exclusiveMinimum", max),
            ("maximum", min),
            ("exclusiveMaximum", min),
        )
        if any(keyword in guide for guide in plain)
    }
    steps = [guide["multipleOf"] for guide in plain if "multipleOf" in guide]
    return contradiction(found, common_step([*steps, *([1] if integer else [])])) is not None


def _ends(plain: Sequence[Guide], least: str, most: str) -> tuple[int, int | None]:
    """The greatest of the least counts, and the least of the greatest ones."""
    greatest = [guide[most] for guide in plain if most in guide]
    return max((guide.get(least, 0) for guide in plain), default=0), min(greatest, default=None)
