"""Bounds of numbers as guides read them: 64-bit integers in xgrammar, doubles of some 18 digits in llguidance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gateway.openai.schemas.walk import Schema

_FARTHEST = 2**62
"""Both take bounds up to here; one farther out is narrowed to it."""
_INMOST = 10**17
"""Both take a least value up to here, and a greatest one down to its negative."""
_MOST_DIGITS = 10**9


def bounds(schema: Schema) -> dict[str, int | float]:
    """The bounds that a schema of numbers has, within what guides read; draft 4's flags become bounds."""
    found: dict[str, int | float] = {}
    for inclusive, exclusive, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        stated = {key: schema[key] for key in (inclusive, exclusive) if key in schema}
        if isinstance(stated.get(exclusive), bool):
            excluded = stated.pop(exclusive)
            if excluded and inclusive in stated:
                stated = {exclusive: stated[inclusive]}
        found |= {key: sign * _least(sign * value) for key, value in stated.items()}
    return found


def _least(value: int | float) -> int | float:
    """A lower bound that no lower value fits: rounded up where a double cannot hold it."""
    value = max(value, -_FARTHEST)
    if isinstance(value, float) or value > _FARTHEST or float(value) == value:
        return value
    near = float(value)
    return int(near if near >= value else math.nextafter(near, math.inf))


def beyond(found: Mapping[str, int | float]) -> str | None:
    """The bound that leaves only numbers with more digits than guides write; None where none does."""
    for keyword, value in found.items():
        if (value > _INMOST and "inimum" in keyword) or (value < -_INMOST and "aximum" in keyword):
            return keyword
    return None


def contradiction(found: Mapping[str, int | float], *, integer: bool) -> str | None:
    """The lower bound above which no number is left by the upper ones; None where numbers are left."""
    for lower in ("minimum", "exclusiveMinimum"):
        for upper in ("maximum", "exclusiveMaximum"):
            if lower not in found or upper not in found:
                continue
            least, most = found[lower], found[upper]
            opened = lower != "minimum" or upper != "maximum"
            if integer:
                least = math.ceil(least) if lower == "minimum" else math.floor(least) + 1
                most = math.floor(most) if upper == "maximum" else math.ceil(most) - 1
                opened = False
            if least > most or (opened and least == most):
                return lower
    return None


def few_digits(step: int | float) -> bool:
    """Whether a step of ``multipleOf`` is short enough for guides."""
    number = Decimal(str(step)).normalize()
    scaled = number.scaleb(-min(0, int(number.as_tuple().exponent)))
    return scaled < _MOST_DIGITS and abs(number.adjusted()) < 15


def is_exact(value: Any) -> bool:
    """Whether all numbers of a JSON value are such that doubles hold them."""
    if isinstance(value, bool) or value is None or isinstance(value, str | float):
        return True
    if isinstance(value, int):
        return abs(value) <= _FARTHEST and float(value) == value
    return all(map(is_exact, value.values() if isinstance(value, Mapping) else value))
