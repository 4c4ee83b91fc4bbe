"""Reads recorded requests: a file with one on each line, as for OpenAI's batches, or bare bodies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gateway.serving.comparison.answer_forms import EMBEDDINGS, ENCODER_PATHS
from gateway.text.bad_request import first_of
from gateway.text.harmless import one_line
from gateway_ops.compare.asking import ComparedRequest

LONGEST_LINE = 16 * 2**20
_MOST_SHOWN = 5
_LONGEST_NAME = 64
_BATCH_KEYS = frozenset({"custom_id", "method", "url", "body"})
_BY_FIELD = {"messages": "/v1/chat/completions", "prompt": "/v1/completions", "input": "/v1/responses"}
_BY_FIELD |= {"query": "/v1/rerank", "text_1": "/v1/score", "queries": "/v1/score"}
_PATHS = tuple(dict.fromkeys((*_BY_FIELD.values(), *ENCODER_PATHS)))
_OF_VECTORS = frozenset({"encoding_format", "dimensions", "input_type", "truncate", "normalize"})
_FORMS = "a line is {custom_id, method, url, body}, or a body of which one field tells the endpoint"


class RequestFileError(ValueError):
    """An unusable file of requests; the message names its lines."""


class _LineError(ValueError):
    """Says why a line is not a request."""


@dataclass(slots=True)
class RequestFile:
    """A checked file of requests, which are read when they are needed.

    Attributes:
        path: of the file.
        greedy: whether all are sent with temperature 0.
        count: number of requests.
        drawn: number of requests with sampled answers.
    """

    path: Path
    greedy: bool = False
    count: int = 0
    drawn: int = 0

    @staticmethod
    def check(path: Path, *, greedy: bool = False) -> RequestFile:
        """Check all lines of a file.

        Args:
            path: of the file.
            greedy: see the attribute.

        Raises:
            LinesError: the file cannot be read, has no requests, or has lines that are not requests.
        """
        found = RequestFile(path, greedy)
        broken = []
        for number, line in _numbered(path):
            try:
                request = _read(number, line)
            except _LineError as error:
                broken.append(f"{path}, line {number}: {error}")
                continue
            found.count += 1
            found.drawn += not (greedy or request.is_greedy)
        if broken:
            first, more = first_of(broken, _MOST_SHOWN)
            raise RequestFileError("\n".join([*first, more]).rstrip())
        if not found.count:
            raise RequestFileError(f"{path} has no requests")
        return found

    def __iter__(self) -> Iterator[ComparedRequest]:
        for number, line in _numbered(self.path):
            try:
                request = _read(number, line)
            except _LineError as error:  # the file has changed since it was checked
                raise RequestFileError(f"{self.path}, line {number}: {error}") from None
            yield request.greedy() if self.greedy else request


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number; one that is too long is not read to its end."""
    if path.exists() and not path.is_file():
        raise RequestFileError(f"{path} is not a regular file; the command reads it twice")
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise RequestFileError(f"{path}, line {number}: more than {LONGEST_LINE >> 20} MiB")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark
                if line.strip():
                    yield number, line
    except OSError as error:
        raise RequestFileError(f"{path} cannot be read: {error.strerror}") from None


def _read(number: int, line: bytes) -> ComparedRequest:
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise _LineError("not JSON; each line must be a whole request") from None
    if not isinstance(values, dict):
        raise _LineError(f"not an object; {_FORMS}")
    if "logger" in values:
        raise _LineError("a line of an access log, which has no request bodies, so it cannot be sent again")
    if "response" in values:
        raise _LineError("a result of a batch; the requests are in the input file of the batch")
    if "body" not in values:
        return ComparedRequest(number, "", path := _path_of(values), _body(values, path))
    if unknown := sorted(values.keys() - _BATCH_KEYS):
        raise _LineError(f"an unknown form, with {unknown[0][:_LONGEST_NAME]!r}; {_FORMS}")
    body = values["body"]
    if not isinstance(body, dict):
        raise _LineError("'body' is not an object")
    if str(values.get("method", "POST")).upper() != "POST":
        raise _LineError("'method' is not POST")
    path = values.get("url", None) or _path_of(body)
    if path not in _PATHS:
        raise _LineError(f"'url' is not one of {', '.join(_PATHS)}")
    name = one_line(str(values.get("custom_id") or ""))[:_LONGEST_NAME]
    return ComparedRequest(number, name, path, _body(body, path))


def _path_of(body: dict[str, Any]) -> str:
    found = [path for name, path in _BY_FIELD.items() if name in body]
    if len(found) != 1:
        raise _LineError(f"not a request; {_FORMS}")
    given = body.get("input")
    of_texts = isinstance(given, list) and not any(isinstance(each, dict) for each in given)
    return EMBEDDINGS if of_texts or (given is not None and body.keys() & _OF_VECTORS) else found[0]


def _body(body: dict[str, Any], path: str) -> dict[str, Any]:
    """Make the body to send, with ``store: false`` so that the server stores no responses.

    Raises:
        _LineError: the body is nested too deeply.
    """
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError:  # it reads deeper than it writes
        raise _LineError("nested too deeply to be sent") from None
    kept = {name: value for name, value in body.items() if name != "model"}
    if path == _BY_FIELD["input"] and not body.get("background"):
        kept.setdefault("store", False)
    return kept
