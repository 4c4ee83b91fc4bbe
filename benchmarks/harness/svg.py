"""Line charts as SVG, without a plotting library: a few polylines on logarithmic or linear axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 520, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 36, 84
_COLOURS = ("#888888", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
_DASHES = ("6 4", "", "", "", "", "2 3")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes:
        label: with its unit.
        log: whether it is logarithmic; then all values are positive.
    """

    label: str
    log: bool = False


def chart(title: str, x: Axis, y: Axis, lines: Mapping[str, Points]) -> str:
    """Draw lines, at least one, by their names; a linear vertical axis begins at zero."""
    xs = [point[0] for points in lines.values() for point in points]
    ys = [point[1] for points in lines.values() for point in points]
    across = _Scale(x, xs, _LEFT, _WIDTH - _RIGHT)
    up = _Scale(y, ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="11" role="img"><title>{escape(title)}</title>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_WIDTH / 2, 20, title, size=13),
    ]
    for value in up.ticks():
        place = up(value)
        parts.append(f'<path d="M{_LEFT} {place:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 6, place + 4, _number(value), anchor="end"))
    for value in sorted(set(xs)) if len(set(xs)) <= 8 else across.ticks():
        place = across(value)
        parts.append(f'<path d="M{place:.1f} {_HEIGHT - _BOTTOM}v4" stroke="#333333"/>')
        parts.append(_text(place, _HEIGHT - _BOTTOM + 16, _number(value)))
    parts.append(f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#333333"/>')
    parts.append(_text(_WIDTH / 2, _HEIGHT - _BOTTOM + 34, x.label))
    parts.append(
        f'<text transform="translate(14 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.label)}</text>"
    )
    for number, (name, points) in enumerate(lines.items()):
        parts += _line(number, name, [(across(a), up(b)) for a, b in points])
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """From values to places on the canvas."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self._log = axis.log
        low, high = (min(values), max(values)) if axis.log else (0.0, max(values) or 1.0)
        if axis.log and low == high:
            low, high = low / 2, high * 2
        self._low, self._high = self._of(low), self._of(high)
        self._start, self._end = start, end

    def _of(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def __call__(self, value: float) -> float:
        share = (self._of(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Round values in the range, two to ten."""
        if self._log:
            first, last = math.floor(self._low), math.ceil(self._high)
            steps = (1, 2, 5) if last - first <= 2 else (1,)
            found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
            return [value for value in found if self._low - 1e-9 <= math.log10(value) <= self._high + 1e-9]
        step = 10 ** math.floor(math.log10(self._high / 2))
        step = next(step * factor for factor in (1, 2, 5, 10) if self._high / (step * factor) <= 6)
        return [step * count for count in range(int(self._high / step) + 1)]


def _line(number: int, name: str, places: Points) -> list[str]:
    colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
    style = f'stroke="{colour}" stroke-width="2" fill="none"' + (f' stroke-dasharray="{dash}"' if dash else "")
    column, row = number % 3, number // 3
    key_x, key_y = _LEFT + column * 150, _HEIGHT - _BOTTOM + 54 + row * 16
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places)
    return [
        f'<polyline points="{path}" {style}/>{dots}',
        f'<path d="M{key_x} {key_y - 4}h22" {style}/>' + _text(key_x + 27, key_y, name, anchor="start"),
    ]


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
