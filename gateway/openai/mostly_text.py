"""Bodies that are mostly text, as nearly all are: recognised by counts of characters, and parsed by a faster parser."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import orjson

from gateway.json_levels import inside, texts
from gateway.openai.json_text import MOST_LEVELS, check_lengths

_VECTORS = 8192  # bytes from which on NumPy counts faster
_MOST_LIGHT = {b"[{": 4096, b",": 32768, b"\\": 131072}
_MOST_SHORT = {b"[{": 1024, b",": 4096, b"\\": 131072}
_SHORT = 2**18  # bytes
_MOST_ITEMS = 32768
_FEW_ITEMS = 1024  # of which no array is too long
_MOST_INT = 2**63  # beyond it the faster parser makes floats of integers


def is_light(body: bytes) -> bool:
    """Whether a body is mostly text, so that parsing it takes a millisecond or two for each MiB.

    Whatever is in an array or object is behind a comma, or the first of it.
    """
    return all(_count(body, marks) <= most for marks, most in _MOST_LIGHT.items())


def is_short(body: bytes) -> bool:
    """Whether a body is mostly text and so short that all work on it takes a few milliseconds at most."""
    return len(body) <= _SHORT and all(_count(body, marks) <= most for marks, most in _MOST_SHORT.items())


def parse(body: bytes) -> dict[str, Any] | None:
    r"""Parse a JSON object as ``json_text.parse`` does; None where only that tells what it means, or what is wrong.

    The faster parser keeps the last of equal keys in silence. Then quotes are missing: each string has two, and one for
    each quote in it, unless that is written as ``\u0022``. NUL, which is refused, can only be written as ``\u0000``.

    Raises:
        JsonTextError: an array is too long.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    quotes, items = _quotes_and_items(value)
    if quotes != _count(body, b'"') or (b"\\u00" in body and (b"\\u0022" in body or b"\\u0000" in body)):
        return None
    if items > _FEW_ITEMS:
        check_lengths(value)
    return value


def _quotes_and_items(value: dict[str, Any]) -> tuple[int, int]:
    """Count the quotes that a text of this object has, and keys and values; no quotes where a closer look is needed."""
    level: list[Any] = [value]
    quotes = items = 0
    for _ in range(MOST_LEVELS):
        level = inside(level)
        items += len(level)
        kinds = set(map(type, level))
        if items > _MOST_ITEMS or (float in kinds and any(map(_is_vast, level))):
            break
        found = texts(level)
        quotes += 2 * len(found) + sum(map(str.count, found, itertools.repeat('"')))
        if dict not in kinds and list not in kinds:
            return quotes, items
    return -1, items


def _is_vast(value: Any) -> bool:
    """Whether a number may have been an integer that the faster parser rounded."""
    return type(value) is float and abs(value) >= _MOST_INT


def _count(text: bytes, marks: bytes) -> int:
    """Count characters of a text; of a long one by NumPy, which takes a fifth of the time."""
    if len(text) < _VECTORS:
        return sum([text.count(mark) for mark in marks])
    codes = np.frombuffer(text, np.uint8)
    return sum([int(np.count_nonzero(codes == mark)) for mark in marks])
