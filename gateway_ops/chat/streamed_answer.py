"""Reads the answer to a chat request, from the events of a stream or from a whole body."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_LONGEST_LINE = 2**20
_LONGEST_ANSWER = 2**24
_LONGEST_MESSAGE = 500
_MOST_TOKENS = 2**53
_AT_ONCE_S = 0.01


class ChatError(Exception):
    """A missing or incomplete answer; the message is for the user and may quote the server.

    Attributes:
        status: the HTTP status, where the server rejected the request; else 0.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """The part of an answer that one event adds.

    Attributes:
        text: text of the answer.
        reasoning: reasoning before it.
        tokens: tokens of ``text`` with their log-probs; empty where the server does not report them.
    """

    text: str = ""
    reasoning: str = ""
    tokens: tuple[tuple[str, float], ...] = ()


@dataclass(slots=True)
class StreamedReply:
    """An answer so far; times are ``time.perf_counter()``.

    Attributes:
        text: text of the answer.
        reasoning: reasoning before it.
        calls: calls of tools, in the form of messages.
        finish_reason: the server's finish reason.
        usage: token counts; empty where the server sends none.
        logprobs: the entries of all tokens, as the server gave them.
        events: number of events with content.
        began: when the request was sent.
        first: when the first event with content came.
        last: when the last event with content came.
    """

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    events: int = 0
    began: float = field(default_factory=time.perf_counter)
    first: float | None = None
    last: float = 0.0

    @property
    def first_s(self) -> float | None:
        """Seconds to the first event with content."""
        return None if self.first is None else self.first - self.began

    def count(self, name: str) -> int | None:
        """A count of the usage; None where the server does not report it."""
        value = self.usage.get(name)
        return value if isinstance(value, int) and abs(value) < _MOST_TOKENS else None

    @property
    def tokens_per_s(self) -> float | None:
        """The tokens per second after the first token.

        None where the server does not count tokens, or the answer came in one burst. A held-back answer, such as a call
        of a tool, comes in a burst of several events, and the time between these events is not the model's.
        """
        count = self.count("completion_tokens")
        if count is None or count < 2 or self.first is None or self.last - self.first < _AT_ONCE_S:
            return None
        return (count - 1) / (self.last - self.first)


class ReplyReader:
    """Reads an answer.

    Attributes:
        answer: the answer so far.
        ended: whether the stream has sent its end.
    """

    def __init__(self) -> None:
        self.answer = StreamedReply()
        self.ended = False
        self._rest = b""
        self._size = 0
        self._places: dict[int, int] = {}  # of calls, by the index that the server gives them

    def feed(self, part: bytes) -> Iterator[ReplyDelta]:
        """Add bytes of a stream.

        Raises:
            ChatError: an event is an error, or unreadable.
        """
        self._size += len(part)
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > _LONGEST_LINE or self._size > _LONGEST_ANSWER:
            raise ChatError("The response is too long.")
        for line in lines:
            if not self.ended and line.startswith(b"data:"):
                yield from self._event(line[5:].strip())

    def whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Read an answer that is not streamed.

        Raises:
            ChatError: the answer does not have the API's form.
        """
        self.ended = True
        yield from self._take(_object(body), "message")

    def _event(self, data: bytes) -> Iterator[ReplyDelta]:
        if data == b"[DONE]":
            self.ended = True
        elif data:
            yield from self._take(_object(data), "delta")

    def _take(self, fields: dict[str, Any], form: str) -> Iterator[ReplyDelta]:
        if fields.get("error") or fields.get("object") == "error":
            raise ChatError(f"The response ended with an error: {words_of(fields)[0]}")
        answer = self.answer
        if isinstance(fields.get("usage"), dict):
            answer.usage = fields["usage"]
        for choice in _objects(fields.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            if choice.get("finish_reason"):
                answer.finish_reason = str(choice["finish_reason"])
            yield from self._show(choice, choice.get(form))

    def _show(self, choice: dict[str, Any], delta: Any) -> Iterator[ReplyDelta]:
        if not isinstance(delta, dict):
            return
        answer = self.answer
        text = _text(delta, "content") + _text(delta, "refusal")
        reasoning = _text(delta, "reasoning_content") or _text(delta, "reasoning")
        logprobs = choice.get("logprobs")
        entries = _objects(logprobs.get("content")) if isinstance(logprobs, dict) else []
        calls = _objects(delta.get("tool_calls"))
        for call in calls:
            self._add_call(call)
        answer.logprobs += entries
        if not (text or reasoning or calls):
            return
        answer.text += text
        answer.reasoning += reasoning
        answer.events += 1
        answer.last = time.perf_counter()
        if answer.first is None:
            answer.first = answer.last
        if text or reasoning:
            yield ReplyDelta(text, reasoning, _tokens(entries, text))

    def _add_call(self, part: dict[str, Any]) -> None:
        """Add a call, or a piece of one; some servers leave out which."""
        calls, index = self.answer.calls, part.get("index")
        if isinstance(index, int):
            place = self._places.setdefault(index, len(calls))
        else:
            place = len(calls) if part.get("id") or not calls else len(calls) - 1
        if place == len(calls):
            calls.append({"id": f"call_{place}", "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[place], part.get("function")
        if part.get("id"):
            call["id"] = str(part["id"])
        if isinstance(function, dict):
            arguments = function.get("arguments") or ""
            call["function"]["name"] += _text(function, "name")
            call["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)


def _tokens(entries: list[dict[str, Any]], text: str) -> tuple[tuple[str, float], ...]:
    """The tokens of a text, where they are exactly its own; those that share a character as one, the least likely."""
    found: list[tuple[str, float]] = []
    waiting, least = b"", 0.0
    try:
        for entry in entries:
            data, logprob = entry.get("bytes"), float(entry["logprob"])
            waiting += bytes(data) if isinstance(data, list) else str(entry["token"]).encode()
            if math.isnan(logprob):
                return ()
            least = min(least, logprob)
            try:
                found.append((waiting.decode(), least))
            except UnicodeDecodeError:
                continue  # the rest of a character comes with the next token
            waiting, least = b"", 0.0
    except (KeyError, OverflowError, TypeError, ValueError):
        return ()
    return tuple(found) if not waiting and "".join(token for token, _ in found) == text else ()


def words_of(response: Any) -> tuple[str, str]:
    """Read the message of an error and what else it names, in the forms of several servers."""
    error = response.get("error", response) if isinstance(response, dict) else response
    if not isinstance(error, dict):
        return str(error)[:_LONGEST_MESSAGE], ""
    message = error.get("message") or error.get("detail") or error.get("error") or error
    names = [str(error[name])[:_LONGEST_MESSAGE] for name in ("code", "param") if error.get(name)]
    return str(message)[:_LONGEST_MESSAGE], ", ".join(names)


def _object(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise ChatError("The server's response is not a response of OpenAI's API.")
    return said


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(fields: dict[str, Any], name: str) -> str:
    """A text, which some servers send as a list of parts."""
    value = fields.get(name)
    if isinstance(value, list):
        return "".join(_text(part, "text") for part in _objects(value))
    return value if isinstance(value, str) else ""
