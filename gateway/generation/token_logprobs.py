"""Log-prob entries of generated tokens and of the prompt, and the queue that releases them with their text."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.generation.engine import EngineError, ErrorKind, MalformedOutputError
from gateway.text.tokens import IncrementalDetokenizer, Tokenizer

_Bytes = bytes  # the dataclass below has a field of that name

LOWEST = -9999.0
"""The log-prob that OpenAI's API gives for a token that is as good as impossible; minus infinity has no JSON form."""

REPLACEMENT = "\ufffd"
"""The character that a text has in place of bytes that are not text."""


@dataclass(slots=True)  # not frozen: making one costs twice as much then
class TokenLogprob:
    """One generated token with its log-prob.

    Attributes:
        token: its text; ``bytes:`` and escapes where its bytes alone are not valid UTF-8.
        bytes: the bytes that it adds to the text; empty for a skipped special token.
        logprob: natural logarithm, at least ``LOWEST``.
        top: alternatives as (token, bytes, logprob), best first.
        index: its id.
        top_ids: ids of the alternatives.
    """

    token: str
    bytes: _Bytes
    logprob: float
    top: tuple[tuple[str, _Bytes, float], ...] = ()
    index: int = field(default=-1, compare=False)
    top_ids: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class PromptTokenLogprob:
    """One prompt token with its log-prob.

    Attributes:
        index: its id.
        token: its text; ``bytes:`` and escapes where its bytes alone are not valid UTF-8.
        bytes: the bytes that it adds to the text; empty for a skipped special token.
        logprob: natural logarithm; None for the first token, which nothing predicts.
        top: alternatives as (id, token, bytes, logprob), best first.
        rank: its rank in the vocabulary, from 1; None where the engine does not report it, and for the first token.
    """

    index: int
    token: str
    bytes: _Bytes
    logprob: float | None
    top: tuple[tuple[int, str, _Bytes, float], ...] = ()
    rank: int | None = None


def token_form(data: bytes) -> str:
    r"""Write a token's bytes as text: UTF-8 where they are valid, else OpenAI's form, as in ``bytes:\xf0\x9f``."""
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
    """Make the entry of the token that ``detokenizer`` gets next.

    Raises:
        MalformedOutputError: when a log-prob is not a number.
    """
    name, data = _named(tokenizer, detokenizer, index)
    others = make_alternatives(tokenizer, detokenizer, top)
    return TokenLogprob(name, data, finite(logprob), others, index, tuple([other for other, _ in top]))


def make_alternatives(
    tokenizer: Tokenizer, detokenizer: IncrementalDetokenizer, top: Sequence[tuple[int, float]]
) -> tuple[tuple[str, bytes, float], ...]:
    """Make the alternatives of the next token's entry, each with text, bytes and log-prob.

    Raises:
        MalformedOutputError: when a log-prob is not a number.
    """
    known = tokenizer.whole_texts  # most tokens have such a text, which is quick to look up
    made = []
    for other, value in top:
        text = known.get(other)
        if text is None or REPLACEMENT in text:
            own = tokenizer.token_bytes(other) if tokenizer.is_special(other) else detokenizer.contribution(other)
            text = token_form(own)
        else:
            own = text.encode()
        made.append((text, own, value if LOWEST <= value < math.inf else finite(value)))
    return tuple(made)


def prompt_entries(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    logprobs: Sequence[float],
    top: Sequence[Sequence[tuple[int, float]]] = (),
    ranks: Sequence[int] = (),
    *,
    skip_special_tokens: bool = False,
) -> list[PromptTokenLogprob]:
    """Make an entry for each prompt token, for ``echo`` and ``prompt_logprobs``.

    Args:
        tokenizer: the tokenizer.
        ids: ids of the prompt.
        logprobs: log-probs of each token but the first.
        top: alternatives of each token but the first, or nothing.
        ranks: ranks of each token but the first, or nothing.
        skip_special_tokens: whether special tokens have no bytes.

    Raises:
        EngineError: the log-probs do not fit the tokens, or one is not a number.
    """
    if len(logprobs) != len(ids) - 1 or (top and len(top) != len(logprobs)):
        raise EngineError(
            ErrorKind.INTERNAL,
            "The engine returned log-probabilities that do not fit the prompt.",
            f"{len(logprobs)} log-probs, {len(top)} alternatives, {len(ids)} prompt tokens",
        )
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens)
    entries = []
    for place, index in enumerate(ids):
        name, data = _named(tokenizer, detokenizer, index)
        others = tuple(
            (other, *_named(tokenizer, detokenizer, other), finite(value))
            for other, value in (top[place - 1] if place and top else ())
        )
        value = finite(logprobs[place - 1]) if place else None
        rank = ranks[place - 1] if place and ranks else None
        entries.append(PromptTokenLogprob(index, name, data, value, others, rank))
        detokenizer.push(index)
    return entries


def _named(tokenizer: Tokenizer, detokenizer: IncrementalDetokenizer, index: int) -> tuple[str, bytes]:
    """Return a token's text and the bytes that it adds; a skipped special token has its text and adds none."""
    data = detokenizer.contribution(index)
    return token_form(data) if data or not tokenizer.is_special(index) else tokenizer.token_text(index), data


def named_by_id(entry: TokenLogprob) -> TokenLogprob:
    """Replace the texts of an entry and its alternatives by ids in vLLM's form: ``token_id:7``."""
    top = tuple(
        (f"token_id:{index}", data, value) for index, (_, data, value) in zip(entry.top_ids, entry.top, strict=True)
    )
    return dataclasses.replace(entry, token=f"token_id:{entry.index}", top=top)


def finite(value: float) -> float:
    """Convert a log-prob to a number that JSON has, at least ``LOWEST``.

    Raises:
        MalformedOutputError: the log-prob is not a number.
    """
    if not value < math.inf:  # false for NaN, too
        raise MalformedOutputError(str(value), "The engine returned a log-probability that is not a number.")
    return max(float(value), LOWEST)


class EntryQueue:
    """A queue of entries whose text is not shown yet, with the characters that each covers."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, TokenLogprob]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, start: int, end: int, entry: TokenLogprob) -> None:
        """Add an entry that covers the characters from ``start`` up to ``end``."""
        self._waiting.append((start, end, entry))

    def shown(self, characters: int) -> list[TokenLogprob]:
        """Remove and return the entries whose text is complete once ``characters`` of the text are shown."""
        waiting, ready = self._waiting, []
        while waiting and waiting[0][1] <= characters:
            ready.append(waiting.popleft()[2])
        return ready

    def cut(self, characters: int) -> list[TokenLogprob]:
        """Remove and return the entries that begin before a cut at ``characters``, and drop the others.

        A token that straddles the cut keeps its entry: part of its text is in the answer.
        """
        ready = [entry for start, _, entry in self._waiting if start < characters]
        self._waiting.clear()
        return ready

    def rest(self) -> list[TokenLogprob]:
        """Remove and return all entries, as the text has ended."""
        ready = [entry for _, _, entry in self._waiting]
        self._waiting.clear()
        return ready
