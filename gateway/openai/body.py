"""Request bodies: bytes to a JSON object that is safe to work with, or a 400 that says what is wrong."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from gateway.openai.errors import OpenAIError

_MOST_LEVELS = 64  # nesting; real requests have fewer than 20
_MOST_FIELDS = 131072  # of all objects together; each one is work, whatever the body's size
# Only a body with such an escape can hold a NUL or a lone surrogate: raw ones are no valid JSON or UTF-8.
_SUSPICIOUS = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)


class _ParseError(ValueError):
    """A rule of ours that the text breaks."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def check_content_type(content_type: str) -> None:
    """Refuse a body that is declared as something else than JSON; no declaration at all is accepted.

    Raises:
        OpenAIError: 415.
    """
    media_type = content_type.partition(";")[0].strip()
    if media_type and not _JSON_TYPE.fullmatch(media_type):
        raise OpenAIError(
            415,
            f"Unsupported content type {media_type[:100]!r}: this endpoint only accepts 'application/json'.",
            code="unsupported_content_type",
        )


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Refused are, besides anything that is not JSON: invalid UTF-8, duplicate keys, NaN and infinite numbers, nesting
    deeper than 64 levels, more than 131072 fields in all, lone surrogates and NUL characters.

    Raises:
        OpenAIError: 400.
    """
    try:
        text = body.decode()
        value = json.loads(
            text, object_pairs_hook=_Objects().make, parse_constant=_no_constant, parse_float=_finite_float
        )
    except UnicodeDecodeError:
        _refuse("the body is not valid UTF-8")
    except RecursionError:
        _refuse("it is nested too deeply")
    except _ParseError as error:
        _refuse(str(error), error.param)
    except json.JSONDecodeError as error:
        _refuse(f"{error.msg} at line {error.lineno}, column {error.colno}")
    except ValueError:  # an integer with more digits than Python converts
        _refuse("a number in it is too large")
    if not isinstance(value, dict):
        _refuse("it must be a JSON object")
    if text.count("[") + text.count("{") > _MOST_LEVELS:  # else none can be so deep
        _check_depth(value)
    if _SUSPICIOUS.search(text):
        for path, string in _strings(value):
            _check_string(path, string)
    return value


def _refuse(reason: str, param: str | None = None) -> NoReturn:
    raise OpenAIError(400, f"We could not parse the JSON body of your request: {reason}.", param=param) from None


class _Objects:
    """Makes the objects of one body, and counts their fields."""

    def __init__(self) -> None:
        self._fields = 0

    def make(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            doubled = Counter(name for name, _ in pairs).most_common(1)[0][0]
            shown = doubled[:64].encode("ascii", "backslashreplace").decode()
            raise _ParseError(f"the key {shown!r} is given twice", shown)
        self._fields += len(mapping)
        if self._fields > _MOST_FIELDS:
            raise _ParseError(f"its objects, messages among them, have more than {_MOST_FIELDS} fields")
        return mapping


def _no_constant(name: str) -> NoReturn:
    raise _ParseError(f"{name} is not a JSON number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _ParseError("a number in it is too large")
    return number


def _check_depth(value: dict[str, Any]) -> None:
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    _refuse(f"it is nested deeper than {_MOST_LEVELS} levels")


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All strings with their paths, keys among them. The depth is bounded by now."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield path, key
            yield from _strings(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _strings(child, f"{path}[{index}]")


def _check_string(path: str, string: str) -> None:
    try:
        string.encode()
    except UnicodeEncodeError:
        raise OpenAIError(
            400, "The text holds a lone surrogate.", param=_printable(path), code="invalid_value"
        ) from None
    if "\0" in string:
        raise OpenAIError(400, "The text holds a NUL character.", param=_printable(path), code="invalid_value")


def _printable(path: str) -> str:
    return path[:256].encode("ascii", "backslashreplace").decode()
