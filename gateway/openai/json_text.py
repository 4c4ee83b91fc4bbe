"""Parse JSON text to an object that is safe to work with. A helper process runs it, too: it imports nothing of ours."""

from __future__ import annotations

import json
import marshal
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

# All objects and arrays of a body together. Each item is work, in small bodies too, and much of it is done in one
# go of an extension module, in which no other thread of Python's runs (benchmarks/README.md, hostile inputs).
MOST_FIELDS = 65536
MOST_CONTAINERS = 65536
MOST_ITEMS = 327680
MOST_MESSAGES = 16384
MOST_PARTS = 16384  # of content, in all
MOST_PARTS_OF_ONE = 2048  # of one message
MOST_CALLS = 1024  # of one message
MOST_PROMPTS = 2048  # strings, or arrays of ids
MOST_CHARACTERS = 2**23  # of one string; no context is so long
MOST_LEVELS = 64  # nesting; real requests have fewer than 20
_LEAST_LIMIT = min(MOST_MESSAGES, MOST_PARTS, MOST_PARTS_OF_ONE, MOST_CALLS, MOST_PROMPTS)  # items; each has two bytes
_PIECE = 2**20  # bytes that are looked at in one go
# What it takes to make the values that another process hands over in one piece, in that of a number.
_PIECE_WEIGHT = 4096
_CONTAINER = 4  # of an object or array itself
_CHARACTERS = 256  # of a text that weigh as much as a number
_HEAVIER = str, dict, list
_NOUNS = {"messages": "messages", "input": "items"}
# Only a body with such an escape can hold a NUL or a lone surrogate: raw ones are no valid JSON or UTF-8.
_SUSPICIOUS = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class JsonTextError(ValueError):
    """A rule that the text breaks.

    Attributes:
        message: the end of a sentence that gives the reason; a whole sentence where there is a code.
        param: path of the fault.
        code: OpenAI's error code, None where it has none.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


def answer(body: bytes | bytearray) -> bytes:
    """Parse a body for another process: return the lengths of the object's pieces and these, or an error's fields."""
    try:
        value = parse(body)
        weights: dict[int, int] = {}
        _weigh(value, weights)
        pieces: list[bytes] = []
        before: tuple[str | int, ...] = ()
        for path, items in _pieces(value, weights):
            same = 0
            while same < min(len(before), len(path)) and before[same] == path[same]:
                same += 1
            pieces.append(marshal.dumps((same, path[same:], items)))  # a name may be megabytes long
            before = path
        return b"".join((marshal.dumps((list(map(len, pieces)), None)), *pieces))
    except JsonTextError as error:
        return marshal.dumps(((), (error.message, error.param, error.code)))
    except MemoryError:
        return marshal.dumps(((), ("it takes too much memory", None, None)))


def object_of(answered: bytes | bytearray) -> dict[str, Any]:
    """The object of an ``answer``; to make all of it in one go would hold up everybody else in this process.

    Raises:
        JsonTextError: the body was refused.
    """
    lengths, problem = marshal.loads(answered)  # noqa: S302 - by our own process
    if problem is not None:
        raise JsonTextError(*problem)
    value: dict[str, Any] = {}
    path: tuple[str | int, ...] = ()
    rest = memoryview(answered)[len(answered) - sum(lengths) :]  # to copy it would take as long as to read it
    for length in lengths:
        same, further, items = marshal.loads(rest[:length])  # noqa: S302 - as above
        rest = rest[length:]
        path = path[:same] + further
        container: Any = value
        for step in path:
            container = container[step]
        if isinstance(items, dict):
            container.update(items)
        else:
            container += items
    return value


def _weigh(value: Any, weights: dict[int, int]) -> int:
    """What it takes to make a value, in that of a number; that of its objects and arrays is noted by their ``id``."""
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS
    if isinstance(value, (dict, list)):
        children = value.values() if isinstance(value, dict) else value
        weight = _CONTAINER + len(value)
        for child in children:
            if child.__class__ in _HEAVIER:
                weight += _weigh(child, weights)
        weights[id(value)] = weight
        return weight
    return 1


def _pieces(
    container: Any, weights: dict[int, int], path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Cut an object or array into further items of what is at a path, each little enough to be made in one go.

    What is too heavy by itself is empty at first, and has pieces of its own.
    """
    items: Any = type(container)()
    heavy: list[tuple[str | int, Any]] = []
    weight = 0
    for key, child in container.items() if isinstance(container, dict) else enumerate(container):
        more = 1 if child.__class__ not in _HEAVIER else weights.get(id(child)) or _weigh(child, weights)
        given = child
        if more > _PIECE_WEIGHT and not isinstance(child, str):
            heavy.append((key, child))
            given, more = type(child)(), _CONTAINER
        if isinstance(items, dict):
            items[key] = given
        else:
            items.append(given)
        weight += more
        if weight > _PIECE_WEIGHT:
            yield path, items
            for name, cut in heavy:
                yield from _pieces(cut, weights, (*path, name))
            items, heavy, weight = type(container)(), [], 0
    yield path, items
    for name, cut in heavy:
        yield from _pieces(cut, weights, (*path, name))


def parse(body: bytes | bytearray, *, light: bool = False) -> dict[str, Any]:
    """Parse a JSON object; ``light`` where it is known to have few parts (``mostly_text.is_light``).

    Refused are, besides anything that is not JSON: invalid UTF-8, duplicate keys, NaN and infinite numbers, nesting
    deeper than 64 levels, more fields, arrays, objects or items in all than the constants above say, longer strings,
    lone surrogates and NUL characters; also longer arrays of messages, content parts, calls and prompts.

    Raises:
        JsonTextError: it is refused.
    """
    containers = body.count(b"[") + body.count(b"{")
    if len(body) > MOST_CONTAINERS and not light:
        _check_structure(body, containers)
    try:
        text = body.decode().removeprefix("\ufeff")  # some editors begin a file with a mark that is no JSON
        # A field takes five bytes: of so few no object has to count them.
        value = (_PLAIN if len(body) <= 5 * MOST_FIELDS else _decoder(_Objects().make)).decode(text)
    except (ValueError, RecursionError) as error:
        raise _refusal(error) from None
    if not isinstance(value, dict):
        raise JsonTextError("it must be a JSON object")
    if len(body) > 2 * _LEAST_LIMIT:
        check_lengths(value)
    if containers > MOST_LEVELS:
        _check_depth(value)
    if len(text) > MOST_CHARACTERS or ("\\u" in text and _SUSPICIOUS.search(text)):
        for path, string in _strings(value):
            _check_string(path, string)
    return value


def _refusal(error: Exception) -> JsonTextError:
    if isinstance(error, JsonTextError):
        return error
    if isinstance(error, UnicodeDecodeError):
        return JsonTextError("the body is not valid UTF-8")
    if isinstance(error, RecursionError):
        return JsonTextError("it is nested too deeply")
    if isinstance(error, json.JSONDecodeError):
        return JsonTextError(f"{error.msg} at line {error.lineno}, column {error.colno}")
    return JsonTextError("a number in it is too large")  # an integer with more digits than Python converts


def _check_structure(body: bytes | bytearray, containers: int) -> None:
    """Count fields, arrays, objects and items before any is made; commas within strings are free.

    Args:
        body: to check.
        containers: brackets that open one, those within strings too.
    """
    if (
        containers <= MOST_CONTAINERS
        and (len(body) <= MOST_FIELDS * 5 or body.count(b":") <= MOST_FIELDS)  # a field takes five bytes
        and (len(body) <= MOST_ITEMS * 1.5 or body.count(b",") + containers <= MOST_ITEMS)
    ):
        return
    marks = b":", b"[{", b",[{"
    counts = [0] * len(marks)
    for part in _outside_strings(body):
        counts = [count + _count(part, mark) for count, mark in zip(counts, marks, strict=True)]
    for count, limit, what in zip(
        counts,
        (MOST_FIELDS, MOST_CONTAINERS, MOST_ITEMS),
        ("its objects, messages among them, have more than {} fields", "it has more than {} objects and arrays",
         "its arrays and objects have more than {} items"),
        strict=True,
    ):  # fmt: skip
        if count > limit:
            raise JsonTextError(what.format(limit))


def _count(text: bytes | bytearray, marks: bytes) -> int:
    return sum([text.count(mark) for mark in marks])


def _outside_strings(body: bytes | bytearray) -> Iterator[bytes]:
    """Give the text between strings, piece by piece."""
    inside, position = False, 0
    while position < len(body):
        end = position + _PIECE
        while body[end - 1 : end] == b"\\":  # the escape goes on behind it
            end += 1
        piece = bytes(body[position:end]).replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0
        position = end


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        doubled = Counter(name for name, _ in pairs).most_common(1)[0][0]
        shown = doubled[:64].encode("ascii", "backslashreplace").decode()
        raise JsonTextError(f"the key {shown!r} is given twice", shown)
    return mapping


class _Objects:
    """Makes the objects of one body, and counts their fields."""

    def __init__(self) -> None:
        self._fields = 0

    def make(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = _unique(pairs)
        self._fields += len(mapping)
        if self._fields > MOST_FIELDS:
            raise JsonTextError(f"its objects, messages among them, have more than {MOST_FIELDS} fields")
        return mapping


def _no_constant(name: str) -> NoReturn:
    raise JsonTextError(f"{name} is not a JSON number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise JsonTextError("a number in it is too large")
    return number


def _decoder(make: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=make, parse_constant=_no_constant, parse_float=_finite_float)


_PLAIN = _decoder(_unique)


def check_lengths(value: dict[str, Any]) -> None:
    """Refuse long arrays before each of their items costs work."""
    prompt = value.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        _check_length(prompt, MOST_PROMPTS, "prompt")
    for name in ("messages", "input"):
        _check_conversation(value.get(name), name)
    prediction = value.get("prediction")
    if isinstance(prediction, dict):
        _check_length(prediction.get("content"), MOST_PARTS_OF_ONE, "prediction.content")


def _check_conversation(messages: Any, path: str) -> None:
    """Refuse too many messages or items, calls and content parts."""
    _check_length(messages, MOST_MESSAGES, path)
    parts = 0
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            _check_length(message.get("tool_calls"), MOST_CALLS, f"{path}[{index}].tool_calls")
            for name in ("content", "output"):
                parts += _check_length(message.get(name), MOST_PARTS_OF_ONE, f"{path}[{index}].{name}")
    if parts > MOST_PARTS:
        message = (
            f"The {_NOUNS[path]} of one request may have {MOST_PARTS} content parts in all, but these have {parts}."
        )
        raise JsonTextError(message, path, "array_above_max_length")


def _check_length(value: Any, most: int, path: str) -> int:
    if not isinstance(value, list):
        return 0
    if len(value) > most:
        message = f"Invalid value for '{path}': it may have at most {most} items."
        raise JsonTextError(message, path, "array_above_max_length")
    return len(value)


def _check_depth(value: dict[str, Any]) -> None:
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise JsonTextError(f"it is nested deeper than {MOST_LEVELS} levels")


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Give all strings with their paths, keys among them. The depth is bounded by now."""
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
    if len(string) > MOST_CHARACTERS:
        message = f"A text may have at most {MOST_CHARACTERS} characters, but this one has {len(string)}."
        raise JsonTextError(message, _printable(path), "string_above_max_length")
    try:
        string.encode()
    except UnicodeEncodeError:
        message = "The text holds a lone surrogate."
        raise JsonTextError(message, _printable(path), "invalid_value") from None
    if "\0" in string:
        raise JsonTextError("The text holds a NUL character.", _printable(path), "invalid_value")


def _printable(path: str) -> str:
    return path[:256].encode("ascii", "backslashreplace").decode()
