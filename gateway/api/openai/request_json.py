"""Parses the JSON object of a request within bounds, and replaces NUL characters and lone surrogates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jiter

from gateway.text.bad_request import BadRequestError, printable

MOST_MESSAGES = 4096
MOST_PARTS = 16384  # of content, in all messages
MOST_PARTS_OF_ONE = 2048  # of one message
MOST_CALLS = 1024  # of one message
MOST_PROMPTS = 2048  # strings, or arrays of ids
MOST_CHARACTERS = 2**23  # of one string
MOST_LEVELS = 64  # of nesting
MOST_CONTAINERS = 65536  # objects and arrays, and keys
MOST_ITEMS = 327680  # of objects and arrays
MOST_DIGITS = 2_000_000  # of integers with 1,000 digits or more: the time to parse one grows with the square of them
_MOST_SURROGATES = 65536  # lone ones in a body
_MOST_NAMED = 33  # paths of replaced characters; a header names 32 and says whether there are more
_LONGEST_PATH = 256  # characters
_CONTAINERS = frozenset((dict, list))
_NO_MARKS = bytes(set(range(256)) - set(b"{[:,"))
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_THOUSAND_DIGITS = b"0" * 1000
_PIECE = 2**20  # bytes that are looked at in one step
_BOM = b"\xef\xbb\xbf"
_NUL = b"\\u0000"
_REPLACEMENT = "\ufffd"
_SURROGATES = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?P<second>\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})"
)
_BACKSLASHES = re.compile(rb"\\*")
_LONE = ("lone leading surrogate", "unexpected end of hex escape")  # in jiter's words
_DUPLICATE = re.compile(r'Detected duplicate key "(.*)" at line', re.DOTALL)
# Fields with texts that a model is shown.
_SHOWN = frozenset((
    "messages", "input", "prompt", "system", "instructions", "items", "tools", "functions", "documents", "suffix",
    "query", "queries", "text_1", "text_2", "prediction",
))  # fmt: skip
_NAMES = frozenset(("name", "role", "type", "id"))  # in them, and what ends with _id
_NOUNS = {"messages": "messages", "input": "items"}


class RequestBody(NamedTuple):
    """The parsed body of a request.

    Attributes:
        raw: the bytes that were parsed, with NUL escapes for lone surrogates.
        fields: the JSON object.
        replaced: paths of texts in which U+FFFD stands for NUL characters and lone surrogates.
    """

    raw: bytes
    fields: dict[str, Any]
    replaced: list[str]


def parse_body(raw: bytes, most_messages: int = MOST_MESSAGES) -> RequestBody:
    """Parse a JSON object.

    Args:
        raw: the bytes.
        most_messages: of ``messages`` and ``input``.

    Raises:
        BadRequestError: it is not a JSON object, has a key twice, or breaks one of the bounds above; a key, name or id
            has a NUL character or a lone surrogate.
    """
    # Each object or array has two bytes at least; a mark may also stand in a string.
    if len(raw) > 2 * MOST_CONTAINERS and len(raw.translate(None, _NO_MARKS)) > MOST_CONTAINERS:
        _check_counts(raw)
    _check_integers(raw)
    try:
        value = _parse(raw)
    except ValueError as error:
        if not str(error).startswith(_LONE):
            raise _syntax_error(raw, str(error)) from None
        raw = _without_lone_surrogates(raw)
        try:
            value = _parse(raw)
        except ValueError as further:
            raise _syntax_error(raw, str(further)) from None
    if not isinstance(value, dict):
        raise _unreadable("it must be a JSON object")
    _check_values(value)
    _check_lengths(value, most_messages)
    if len(raw) > MOST_CHARACTERS:
        _check_texts(value)
    replaced: list[str] = []
    if _NUL in raw:
        value = _without_nul(value, (), replaced)
    return RequestBody(raw, value, replaced)


def _parse(raw: bytes) -> Any:
    return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")


def _unreadable(reason: str, param: str | None = None) -> BadRequestError:
    return BadRequestError(f"We could not parse the JSON body of your request: {reason}.", param=param)


def _syntax_error(raw: bytes, reason: str) -> BadRequestError:
    if raw.startswith(_BOM):
        return _unreadable("it begins with a byte order mark")
    if reason.startswith("recursion limit"):
        return _too_deep()
    if reason.startswith("number out of range"):
        return _unreadable(f"an integer in it has more than 4,300 digits{reason.removeprefix('number out of range')}")
    if duplicate := _DUPLICATE.match(reason):
        key = printable(duplicate[1])[:64]
        return _unreadable(f"the key {key!r} is duplicated", key)
    return _unreadable(reason)


def _too_deep() -> BadRequestError:
    return _unreadable(f"it is nested deeper than {MOST_LEVELS} levels")


def _without_lone_surrogates(raw: bytes) -> bytes:
    """Write NUL escapes for the escapes of lone surrogates.

    Raises:
        BadRequestError: the body has too many of them.
    """
    written, end, lone = bytearray(raw), 0, 0
    for match in _SURROGATES.finditer(raw):
        before, start, second = raw[end : match.start()], match.start(), match.start("second")
        end = match.end()
        if (len(before) - len(before.rstrip(b"\\"))) % 2:
            start = second  # the first is text behind an escaped backslash
        elif second >= 0:
            continue
        if start >= 0:
            written[start : start + len(_NUL)] = _NUL
            lone += 1
        if lone > _MOST_SURROGATES:
            raise _unreadable(f"it has more than {_MOST_SURROGATES} lone surrogates")
    return bytes(written)


def _check_counts(raw: bytes) -> None:
    """Reject too many objects, arrays, keys and items before any is made: parsing a million takes a second."""
    containers = commas = 0
    for part in _outside_strings(raw):
        containers += sum(map(part.count, (b"{", b"[", b":")))
        commas += part.count(b",")
    if containers > MOST_CONTAINERS:
        raise _unreadable(f"it has more than {MOST_CONTAINERS} objects, arrays and keys")
    if commas + containers > MOST_ITEMS:
        raise _unreadable(f"its objects and arrays have more than {MOST_ITEMS} items")


def _check_integers(raw: bytes) -> None:
    """Reject too many digits of long integers before they are parsed."""
    sample = raw[::500].translate(_ZEROS)  # has two digits of each thousand
    if sample.count(b"0") >= MOST_DIGITS // 500 and _long_digits(raw) > MOST_DIGITS:
        raise _unreadable(f"its integers of 1,000 digits or more have more than {MOST_DIGITS} digits in total")


def _long_digits(raw: bytes) -> int:
    """The digits of long integers, in thousands."""
    return 1000 * sum(part.translate(_ZEROS).count(_THOUSAND_DIGITS) for part in _outside_strings(raw))


def _outside_strings(raw: bytes) -> Iterator[bytes]:
    """The text between strings, some at a time."""
    inside, start = False, 0
    while start < len(raw):
        end = start + _PIECE
        if raw[end - 1 : end] == b"\\":  # the escape goes on behind it
            end = _BACKSLASHES.match(raw, end).end() + 1  # type: ignore[union-attr] # matches anything
        parts = raw[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0
        start = end


def _check_values(value: dict[str, Any]) -> None:
    """Reject too many levels, and numbers that are infinite as a double."""
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS):
        inner: list[Any] = []
        for each in level:
            inner += each.values() if type(each) is dict else each
        kinds = set(map(type, inner))
        if float in kinds and (math.inf in inner or -math.inf in inner):
            raise _unreadable("a number in it exceeds the range of a double")
        if kinds.isdisjoint(_CONTAINERS):
            return
        level = [each for each in inner if type(each) in _CONTAINERS]
    raise _too_deep()


def _check_lengths(value: dict[str, Any], most_messages: int) -> None:
    """Reject arrays that are too long."""
    prompt = value.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        _check_length(prompt, MOST_PROMPTS, "prompt")
    for name in ("messages", "input"):
        _check_conversation(value.get(name), name, most_messages)
    prediction = value.get("prediction")
    if isinstance(prediction, dict):
        _check_length(prediction.get("content"), MOST_PARTS_OF_ONE, "prediction.content")


def _check_conversation(messages: Any, path: str, limit: int) -> None:
    """Reject too many messages or items, calls and content parts."""
    _check_length(messages, limit, path)
    parts = 0
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            if isinstance(calls := message.get("tool_calls"), list):
                _check_length(calls, MOST_CALLS, f"{path}[{index}].tool_calls")
            for name in ("content", "output"):
                if isinstance(found := message.get(name), list):
                    parts += _check_length(found, MOST_PARTS_OF_ONE, f"{path}[{index}].{name}")
    if parts > MOST_PARTS:
        message = (
            f"The {_NOUNS[path]} of a request may have at most {MOST_PARTS} content parts in total, but these have "
            f"{parts}."
        )
        raise BadRequestError(message, path, "array_above_max_length")


def _check_length(value: Any, limit: int, path: str) -> int:
    if not isinstance(value, list):
        return 0
    if len(value) > limit:
        message = f"Invalid value for '{path}': must have at most {limit} items."
        raise BadRequestError(message, path, "array_above_max_length")
    return len(value)


def _check_texts(value: dict[str, Any]) -> None:
    """Reject a text that is too long."""
    for path, text in _texts(value):
        if len(text) > MOST_CHARACTERS:
            message = f"A text must have at most {MOST_CHARACTERS} characters, but this text has {len(text)}."
            raise BadRequestError(message, _named(path), "string_above_max_length")


_Path = tuple[str | int, ...]


def _texts(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """All strings with their paths, keys among them."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield path, key
            yield from _texts(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _texts(child, (*path, index))


def _without_nul(value: Any, path: _Path, replaced: list[str]) -> Any:
    """A value with U+FFFD in place of NUL characters.

    Args:
        value: to read.
        path: of the value.
        replaced: takes the paths of changed texts.

    Raises:
        BadRequestError: a key, name or id has one, or a field that the model is not shown.
    """
    if isinstance(value, str):
        if "\0" not in value:
            return value
        if not _is_shown(path):
            raise _nul(path)
        if len(replaced) < _MOST_NAMED:
            replaced.append(_named(path) or "")
        return value.replace("\0", _REPLACEMENT)
    if isinstance(value, dict):
        if (key := next((key for key in value if "\0" in key), None)) is not None:
            raise _nul((*path, key))
        return {key: _without_nul(child, (*path, key), replaced) for key, child in value.items()}
    if isinstance(value, list):
        return [_without_nul(child, (*path, index), replaced) for index, child in enumerate(value)]
    return value


def _is_shown(path: _Path) -> bool:
    """Whether a text is one that the model is shown, and no name or id; arguments of a call may have any keys."""
    if path[0] not in _SHOWN:
        return False
    key = next(step for step in reversed(path) if isinstance(step, str))
    return (key not in _NAMES and not key.endswith("_id")) or "input" in path[1:-1]


def _nul(path: _Path) -> BadRequestError:
    message = "NUL characters and lone surrogates are only allowed in texts for the model, not in this field."
    return BadRequestError(message, (_named(path) or "").replace("\0", _REPLACEMENT), "invalid_value")


def _named(path: _Path) -> str | None:
    """A path as errors and headers name it, cut where it is long; None for the body itself."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{printable(step)}" for step in path]
    return "".join(steps).removeprefix(".")[:_LONGEST_PATH] or None
