"""Values that were measured at some points, and are interpolated elsewhere."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass


class SizingError(ValueError):
    """A plan that cannot be made; the message says why, and the fix."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured values by a positive number, with straight lines between them.

    Attributes:
        points: number and value, by rising number; at least one.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        numbers = [number for number, _ in self.points]
        if not self.points or sorted(set(numbers)) != numbers:
            raise SizingError("numbers of points must rise, and each may occur once")
        if not all(0 < number < math.inf and 0 <= value < math.inf for number, value in self.points):
            raise SizingError("numbers must be above 0, and values must be 0 or more")

    @staticmethod
    def parse(text: str) -> Curve:
        """Read ``12.5``, a constant, or ``1:9.5,64:20``.

        Raises:
            SizingError: the text is neither.
        """
        try:
            if ":" not in text:
                return Curve(((1.0, float(text)),))
            pairs = (part.split(":") for part in text.split(","))
            return Curve(tuple(sorted((float(number), float(value)) for number, value in pairs)))
        except ValueError as error:
            said = f": {error}" if isinstance(error, SizingError) else ""
            raise SizingError(f"{text!r} is not a list of values: give 12.5, or 1:9.5,64:20{said}") from None

    @property
    def largest(self) -> float:
        """The largest number with a value."""
        return self.points[-1][0]

    def at(self, number: float) -> float:
        """The value at a number; below the first and above the last point the value of that point."""
        place = bisect.bisect_left(self.points, (number, -math.inf))
        if place == 0:
            return self.points[0][1]
        if place == len(self.points):
            return self.points[-1][1]
        (low, before), (high, after) = self.points[place - 1], self.points[place]
        return before + (after - before) * (number - low) / (high - low)
