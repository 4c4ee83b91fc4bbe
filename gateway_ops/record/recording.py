"""The file of a recording: a line of JSON for its format, then one for each call."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import grpc
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from typing_extensions import Self

from gateway_ops.record.messages import Json, redacted, write

FORM = 1
_LONGEST_LINE = 2**28


class RecordingError(Exception):
    """An unusable recording; the message says why."""


class RecordedCall(BaseModel):
    """A call: one request with its responses.

    Attributes:
        method: path of the call.
        request: the request, as of ``messages.read``.
        answers: the responses in order.
        after_s: for each response, seconds since the request.
        status: name of gRPC's status, such as ``OK`` or ``CANCELLED``.
        details: its text.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    method: str
    request: Json
    answers: list[Json] = []
    after_s: list[float] = []
    status: str = "OK"
    details: str = ""

    @model_validator(mode="after")
    def _can_be_sent(self) -> Self:
        """Reject what cannot be replayed."""
        if len(self.answers) != len(self.after_s) or self.status not in grpc.StatusCode.__members__:
            raise ValueError("a response without its time, or an unknown gRPC status")
        for answer in self.answers:
            write(self.method, answer, answer=True)
        return self


class RecordingWriter:
    """Writes a recording; a context.

    Args:
        file: a new file, which only its owner may read.
        gateway: the version of this program.
        redact: whether texts and ids of tokens are hidden.
        most_bytes: most bytes; calls beyond are not written.

    Attributes:
        written: number of calls in the file.
        left_out: number of calls that did not fit.

    Raises:
        RecordingError: the file cannot be written, or exists.
    """

    def __init__(self, file: Path, gateway: str, *, redact: bool, most_bytes: int) -> None:
        self.written = self.left_out = 0
        self._redact = redact
        self._room = most_bytes
        self._last: dict[str, str] = {}
        try:
            opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise RecordingError(f"{file} cannot be written: {error.strerror}") from None
        self._file: TextIO = os.fdopen(opened, "w", encoding="utf-8")
        self._put({"recording": FORM, "gateway": gateway, "redacted": redact})

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, exchange: RecordedCall) -> None:
        """Write a call. Requests for a server's state are written only when the response has changed."""
        form = exchange.model_dump()
        if self._redact:
            form["request"] = redacted(form["request"])
            form["answers"] = [redacted(answer) for answer in form["answers"]]
            form["details"] = "x" * len(form["details"])
        if "tensors" not in form["request"]:
            asked = json.dumps([form["method"], form["request"]], sort_keys=True)
            said = json.dumps([form["answers"], form["status"]], sort_keys=True)
            if self._last.get(asked) == said:
                return
            self._last[asked] = said
        if self._put(form):
            self.written += 1
        else:
            self.left_out += 1

    def _put(self, form: Json) -> bool:
        line = f"{json.dumps(form)}\n"
        if len(line) > self._room:
            return False
        self._room -= len(line)
        self._file.write(line)
        self._file.flush()
        return True


def read_recording(file: Path) -> tuple[bool, list[RecordedCall]]:
    """Read whether a recording is redacted, and its calls.

    Raises:
        RecordingError: the file cannot be read, is not a recording, or has an unknown format.
    """
    lines = _lines(file)
    head = next(lines, None)
    if not isinstance(head, dict) or "recording" not in head:
        raise RecordingError(f"{file} is not a recording of `gateway record`")
    if head["recording"] != FORM:
        form = f"form {head['recording']!r}, by gateway {head.get('gateway')}"
        raise RecordingError(f"{file} is a recording of {form}; this gateway reads form {FORM}")
    return bool(head.get("redacted")), [_exchange(file, number, line) for number, line in enumerate(lines, 2)]


def _exchange(file: Path, number: int, line: Any) -> RecordedCall:
    try:
        return RecordedCall.model_validate(line)
    except ValidationError as error:
        why = error.errors()[0]
        raise RecordingError(f"{file}, line {number}: {'.'.join(map(str, why['loc']))} {why['msg']}") from None


def _lines(file: Path) -> Iterator[Any]:
    try:
        with file.open(encoding="utf-8") as opened:
            number = 0
            while line := opened.readline(_LONGEST_LINE):
                number += 1
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    raise RecordingError(f"{file}, line {number}: not JSON") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RecordingError(f"{file} cannot be read: {reason}") from None
