"""Token counts of a sequence and of an answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from gateway.generation.stop import StopSearch
from gateway.text.tokens import Tokenizer

_STRETCH = 512  # characters; what is longer is tokenized once while the answer grows


class PredictedCounts(NamedTuple):
    """Counts of predicted tokens.

    Attributes:
        accepted: predicted tokens with which the answer begins, by their ids, whether or not the engine used the draft.
        rejected: all other predicted tokens.
    """

    accepted: int
    rejected: int


_NOTHING_PREDICTED = PredictedCounts(0, 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """The token counts of an answer.

    Attributes:
        prompt_tokens: ids that the engine got.
        completion_tokens: ids generated up to and including the one that completed a stop string, or that is a stop id;
            neither EOS nor a trimmed end id is counted.
        cached_tokens: prompt tokens that the engine found in its KV cache; None when not requested or unknown, as
            when the gateway ends the answer before the engine's last response, which carries it.
        predicted: counts of the tokens that the request predicted; None when the engine returns no ids.
        estimated: whether ``completion_tokens`` was counted by tokenizing the text of the answer again, so that the
            engine's own count may be another.
        reasoning_tokens: tokens of the completion whose text is reasoning; None where this is not known.
        may_reason: whether the answer may have reasoning.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    predicted: PredictedCounts | None = _NOTHING_PREDICTED
    estimated: bool = False
    reasoning_tokens: int | None = 0
    may_reason: bool = False

    @classmethod
    def of_all(cls, prompts: Collection[Usage], choices: Collection[Usage]) -> Usage:
        """Add up the counts of an answer; a count that is unknown for one choice is unknown for all.

        Args:
            prompts: usage of one choice for each prompt, whose prompt is counted.
            choices: usage of all choices, whose completions are counted.
        """
        cached = [usage.cached_tokens for usage in prompts if usage.cached_tokens is not None]
        known = [usage.predicted for usage in choices if usage.predicted is not None]
        return cls(
            prompt_tokens=sum(usage.prompt_tokens for usage in prompts),
            completion_tokens=sum(usage.completion_tokens for usage in choices),
            cached_tokens=sum(cached) if len(cached) == len(prompts) else None,
            predicted=PredictedCounts(*map(sum, zip(*known, strict=True))) if len(known) == len(choices) else None,
            estimated=any(usage.estimated for usage in choices),
        )

    def at_beginning(self) -> Usage:
        """Copy the counts as before the first token, without the cached tokens."""
        return Usage(self.prompt_tokens, 0)

    def with_reasoning(self, counts: Collection[int | None]) -> Usage:
        """Add the reasoning tokens of the choices."""
        known = [count for count in counts if count is not None]
        reasoning = sum(known) if len(known) == len(counts) else None
        return replace(self, reasoning_tokens=reasoning, may_reason=True)


class TokenCount(NamedTuple):
    """A number of tokens.

    Attributes:
        tokens: the number.
        estimated: whether they were counted by tokenizing text again.
    """

    tokens: int
    estimated: bool


class TextCounter:
    """Counts generated tokens by the engine's counts, or by tokenizing the text again without them."""

    __slots__ = (
        "_counted",
        "_end_texts",
        "_engine_counts",
        "_known",
        "_last",
        "_length",
        "_open",
        "_parts",
        "_settled",
        "_tokenizer",
    )

    def __init__(self, tokenizer: Tokenizer, end_texts: tuple[str, ...]) -> None:
        """Start at zero.

        Args:
            tokenizer: for the count when the engine does not count.
            end_texts: texts that end the answer and are not a part of it, as the id behind them is not.
        """
        self._tokenizer = tokenizer
        self._end_texts = end_texts
        self._parts: list[str] = []
        self._counted: int | None = 0
        self._engine_counts = False  # whether the engine counted anything: no text may still be tokens, special ones
        self._length = 0  # characters so far
        self._last = 0  # tokens of the latest chunk
        self._known: tuple[str, int] | None = None  # the last tokenized text, and its count
        self._settled = 0  # tokens of the parts before those in `_open`, roughly
        self._open = 0

    def add(self, text: str, output_tokens: int | None) -> None:
        """Add a chunk: its text, and its tokens where the engine counts them."""
        self._parts.append(text)
        self._length += len(text)
        if output_tokens is None:
            self._counted = None if text else self._counted
        elif self._counted is not None:
            self._counted += output_tokens
            self._last = output_tokens
            self._engine_counts = True

    def so_far(self) -> TokenCount:
        """Count the tokens of a running answer; without an engine's counts an estimate by its text.

        The text is tokenized in parts, each of them once: the whole text for each event would take seconds.
        """
        if self._counted is not None and self._engine_counts:
            return TokenCount(self._counted, False)
        text = "".join(self._parts[self._open :])
        tokens = self._settled + self._tokens(text)
        if len(text) > _STRETCH:
            self._settled, self._open = tokens, len(self._parts)
        return TokenCount(tokens, True)

    def completion_tokens(self, stops: StopSearch) -> TokenCount:
        """Count the tokens up to the end of a stop string; an end text (one token by its id) is not counted."""
        matched = stops.matched is not None
        ended = matched and stops.matched in self._end_texts
        if self._counted is None or not self._engine_counts:
            text = "".join(self._parts)
            return TokenCount(self._tokens(text[: stops.position if ended else stops.end] if matched else text), True)
        if not matched or self._last <= 1 or stops.end >= self._length:
            return TokenCount(max(self._counted - ended, 0), False)
        # The chunk that completed the stop has tokens behind it, and does not say how many.
        before = self._length - len(self._parts[-1])
        rest = self._parts[-1][: max((stops.position if ended else stops.end) - before, 0)]
        return TokenCount(self._counted - self._last + min(self._tokens(rest), self._last), True)

    def _tokens(self, text: str) -> int:
        # Cached: the end of an answer calls this several times, and long texts would hold the event loop.
        if self._known is None or self._known[0] != text:
            self._known = (text, len(self._tokenizer.encode(text)))
        return self._known[1]
