"""Outcomes of a request: an answer and its parts, a refusal, or a failure, read from the bytes that came."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import orjson

from gateway.judging.answer_forms import Answer, FailedError, Reader, word

# They tell of the server's state, not of the request.
_PASSING = frozenset({429, 502, 503, 504})
_LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class Refusal:
    """A target's answer that it will not serve a request.

    Attributes:
        status: of HTTP.
        code: of the error; empty where it has none.
        param: the parameter at fault, if it is named.
        message: in the server's words, which may repeat what the request says.
    """

    status: int
    code: str
    param: str
    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without an answer, for a reason that is not the request's."""

    kind: str


Outcome = Answer | Refusal | Failure


def refused(status: int, body: bytes) -> Outcome:
    """The outcome of an answer whose status is not 200."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    error = said.get("error") if isinstance(said, dict) else None
    code = word(error, "code", "type")
    if status in _PASSING:
        return Failure(f"{status} {code}".strip())
    message = error.get("message") if isinstance(error, dict) else body.decode("utf-8", "replace")
    return Refusal(status, code, word(error, "param"), str(message)[:_LONGEST_MESSAGE])


def outcome_of(path: str, status: int, body: bytes, *, streamed: bool) -> Outcome:
    """The outcome of an answer that is here as a whole, without its delays.

    Args:
        path: of the endpoint.
        status: of HTTP.
        body: all of it.
        streamed: whether it is made of events.
    """
    if status != HTTPStatus.OK:
        return refused(status, body)
    reader = Reader(path)
    try:
        if streamed:
            _read_events(body, reader)
        else:
            reader.whole(body)
        return reader.answer()
    except FailedError as error:
        return Failure(str(error))


def _read_events(body: bytes, reader: Reader) -> None:
    for line in body.split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        reader.event(data)
        if reader.is_whole:
            return
    raise FailedError("a stream without its end")
