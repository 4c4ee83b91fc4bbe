"""The prompt's own tokens with their log-probs, as ``echo`` and ``prompt_logprobs`` show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.logprobs import finite, token_form
from gateway.tokens import IncrementalDetokenizer, Tokenizer

_Bytes = bytes  # the dataclass below has a field of that name


@dataclass(frozen=True, slots=True)
class PromptLogprob:
    """One prompt token.

    Attributes:
        index: its id.
        token: its text; ``bytes:`` and escapes where its bytes alone are no valid UTF-8.
        bytes: the bytes that it adds to the text; empty for a skipped special token.
        logprob: natural logarithm; None for the first token, which nothing predicts.
        top: alternatives as (id, token, bytes, logprob), best first.
        rank: its place among all tokens of the vocabulary, from 1; None where nobody says, as for the first token.
    """

    index: int
    token: str
    bytes: _Bytes
    logprob: float | None
    top: tuple[tuple[int, str, _Bytes, float], ...] = ()
    rank: int | None = None


def prompt_entries(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    logprobs: Sequence[float],
    top: Sequence[Sequence[tuple[int, float]]] = (),
    ranks: Sequence[int] = (),
    *,
    skip_special_tokens: bool = False,
) -> list[PromptLogprob]:
    """Make an entry for each prompt token.

    Args:
        tokenizer: whose ids they are.
        ids: the prompt.
        logprobs: of each token but the first.
        top: alternatives of each token but the first, or nothing.
        ranks: of each token but the first, or nothing.
        skip_special_tokens: whether special tokens have no bytes.

    Raises:
        EngineError: not one log-prob for each token, or one that is not a number.
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
        own = detokenizer.contribution(index)
        name = token_form(own) if own or not tokenizer.is_special(index) else tokenizer.token_text(index)
        others = []
        for other, value in top[place - 1] if place and top else ():
            data = detokenizer.contribution(other)
            shown = token_form(data) if data or not tokenizer.is_special(other) else tokenizer.token_text(other)
            others.append((other, shown, data, finite(value)))
        own_value = finite(logprobs[place - 1]) if place else None
        rank = ranks[place - 1] if place and ranks else None
        entries.append(PromptLogprob(index, name, own, own_value, tuple(others), rank))
        detokenizer.push(index)
    return entries
