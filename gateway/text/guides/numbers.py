"""Bounds and steps of numbers in guides: 64-bit integers in xgrammar, doubles of 18 digits in llguidance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gateway.text.guides.keywords import Schema

_FARTHEST = 2**62
"""Both take bounds up to here; one farther out is narrowed to it."""
INMOST = 10**17
"""Both take a least value up to here, and a greatest one down to its negative."""
_MOST_DIGITS = 10**9


def bounds(schema: Schema) -> dict[str, int | float]:
    """The bounds of a schema of numbers, within the range of guides; draft 4's flags become bounds."""
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
    """Return a lower bound that no lower value fits: rounded up where a double cannot hold it."""
    value = max(value, -_FARTHEST)
    if isinstance(value, float) or value > _FARTHEST or float(value) == value:
        return value
    near = float(value)
    return int(near if near >= value else math.nextafter(near, math.inf))


def contradiction(bounds: Mapping[str, int | float], step: Fraction | None) -> str | None:
    """Find the lower bound that leaves no number, or no multiple of a step, below the upper bounds."""
    for lower in ("minimum", "exclusiveMinimum"):
        for upper in ("maximum", "exclusiveMaximum"):
            if lower not in bounds or upper not in bounds:
                continue
            least, most = exactly(bounds[lower]), exactly(bounds[upper])
            opened = lower != "minimum" or upper != "maximum"
            if step is not None:
                least = Fraction(math.ceil(least / step) if lower == "minimum" else math.floor(least / step) + 1)
                most = Fraction(math.floor(most / step) if upper == "maximum" else math.ceil(most / step) - 1)
                opened = False
            if least > most or (opened and least == most):
                return lower
    return None


def exactly(value: int | float) -> Fraction:
    """The number as it was written: 0.3 is three tenths."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def common_step(steps: Iterable[int | float]) -> Fraction | None:
    """The least common multiple of steps; None without steps."""
    found: Fraction | None = None
    for step in map(exactly, steps):
        found = found or step
        over = found.denominator * step.denominator
        found = Fraction(math.lcm(found.numerator * step.denominator, step.numerator * found.denominator), over)
    return found


def few_digits(step: int | float) -> bool:
    """Tell whether a step of ``multipleOf`` is short enough for guides."""
    number = Decimal(str(step)).normalize()
    scaled = number.scaleb(-min(0, int(number.as_tuple().exponent)))
    return scaled < _MOST_DIGITS and abs(number.adjusted()) < 15


def is_exact(value: Any) -> bool:
    """Tell whether doubles hold all numbers of a JSON value."""
    if isinstance(value, bool) or value is None or isinstance(value, str | float):
        return True
    if isinstance(value, int):
        return abs(value) <= _FARTHEST and float(value) == value
    return all(map(is_exact, value.values() if isinstance(value, Mapping) else value))
