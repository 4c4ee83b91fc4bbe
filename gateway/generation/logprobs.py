"""Log-prob entries as OpenAI shapes them, and the queue that sends each with the text it belongs to."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.generation.engine import MalformedOutputError
from gateway.tokens import IncrementalDetokenizer, Tokenizer

_Bytes = bytes  # the dataclass below has a field of that name

LOWEST = -9999.0
"""The log-prob that OpenAI's API gives for a token that is as good as impossible; minus infinity has no JSON form."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One generated token with its natural-log probability.

    Attributes:
        token: its text; ``bytes:`` and escapes where its bytes alone are no valid UTF-8.
        bytes: the bytes that it adds to the text; empty for a skipped special token.
        logprob: natural logarithm, at least ``LOWEST``.
        top: alternatives as (token, bytes, logprob), best first.
        index: its id.
        top_ids: those of the alternatives.
    """

    token: str
    bytes: _Bytes
    logprob: float
    top: tuple[tuple[str, _Bytes, float], ...] = ()
    index: int = field(default=-1, compare=False)
    top_ids: tuple[int, ...] = field(default=(), compare=False)


def token_form(data: bytes) -> str:
    r"""A token's text from its bytes: UTF-8 where it is that, else OpenAI's form, such as ``bytes:\xf0\x9f``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)


def make_entry(
    tokenizer: Tokenizer,
    detokenizer: IncrementalDetokenizer,
    index: int,
    logprob: float,
    top: Sequence[tuple[int, float]],
) -> TokenLogprob:
    """The entry of a token that is about to be pushed into ``detokenizer``.

    Raises:
        MalformedOutputError: when a log-prob is not a number.
    """
    data = detokenizer.contribution(index)
    name = token_form(data) if data or not tokenizer.is_special(index) else tokenizer.token_text(index)
    alternatives = []
    for other, value in top:
        own = tokenizer.token_bytes(other) if tokenizer.is_special(other) else detokenizer.contribution(other)
        alternatives.append((token_form(own), own, finite(value)))
    ids = tuple(other for other, _ in top)
    return TokenLogprob(name, data, finite(logprob), tuple(alternatives), index, ids)


def named_by_id(entry: TokenLogprob) -> TokenLogprob:
    """The entry with its id in place of its text, and so its alternatives: ``token_id:7``, as vLLM writes it."""
    top = tuple(
        (f"token_id:{index}", data, value) for index, (_, data, value) in zip(entry.top_ids, entry.top, strict=True)
    )
    return dataclasses.replace(entry, token=f"token_id:{entry.index}", top=top)


def finite(value: float) -> float:
    """A log-prob as JSON can tell it: a number, at least ``LOWEST``.

    Raises:
        MalformedOutputError: it is none.
    """
    if not value < math.inf:  # nor is what is not a number
        raise MalformedOutputError(str(value), "The engine returned a log-probability that is not a number.")
    return max(float(value), LOWEST)


class EntryQueue:
    """Entries whose text was not shown yet, in order, each with the characters of the whole text that it covers."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, TokenLogprob]] = deque()

    def add(self, start: int, end: int, entry: TokenLogprob) -> None:
        """Append an entry that covers the characters from ``start`` up to ``end``."""
        self._waiting.append((start, end, entry))

    def shown(self, characters: int) -> list[TokenLogprob]:
        """Take the entries whose text is complete once ``characters`` of the text are shown."""
        waiting, ready = self._waiting, []
        while waiting and waiting[0][1] <= characters:
            ready.append(waiting.popleft()[2])
        return ready

    def cut(self, characters: int) -> list[TokenLogprob]:
        """Take the entries that begin before a cut at ``characters``, and drop the others.

        A token that straddles the cut keeps its entry: part of its text is in the answer.
        """
        ready = [entry for start, _, entry in self._waiting if start < characters]
        self._waiting.clear()
        return ready

    def rest(self) -> list[TokenLogprob]:
        """Take all entries: the text has ended."""
        ready = [entry for _, _, entry in self._waiting]
        self._waiting.clear()
        return ready
