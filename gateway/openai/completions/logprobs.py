"""The log-prob lists of completions: ``tokens``, ``token_logprobs``, ``top_logprobs`` and ``text_offset``."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.generation import EngineError, ErrorKind, TokenLogprob
from gateway.generation.token_logprobs import make_entry, named_by_id
from gateway.tokens import IncrementalDetokenizer, Tokenizer

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Row:
    """One token of the lists.

    Attributes:
        token: its text.
        bytes: what it adds to the text.
        logprob: natural logarithm; None for the first token of a prompt, which nothing comes before.
        top: alternatives by their text, the token itself among them; None where ``logprob`` is.
        offset: the character at which it begins, for a prompt's token; None: where the text before it ends.
    """

    token: str
    bytes: bytes
    logprob: float | None
    top: dict[str, float] | None
    offset: int | None = None


def row_of(entry: TokenLogprob, offset: int | None = None, *, names_as_ids: bool = False) -> Row:
    """The row of a token; where two alternatives have the same text, the better one stays."""
    if names_as_ids:
        entry = named_by_id(entry)
    top: dict[str, float] = {}
    for token, _, logprob in entry.top:
        top.setdefault(token, logprob)
    top[entry.token] = entry.logprob  # OpenAI: the chosen token is always there, beyond the number asked for if need be
    return Row(entry.token, entry.bytes, entry.logprob, top, offset)


def prompt_rows(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    text: str,
    logprobs: Sequence[float],
    top: Sequence[Sequence[tuple[int, float]]],
    *,
    silent_bos: bool,
    names_as_ids: bool = False,
) -> list[Row]:
    """The rows of a prompt's tokens, special tokens shown.

    Args:
        tokenizer: of the model.
        ids: of the prompt.
        text: as the answer shows it. No offset is beyond it: some tokenizers add a space, or lose one.
        logprobs: of each id but the first.
        top: for each of these its alternatives as (id, log-prob), best first; empty where none were asked for.
        silent_bos: whether the first id is a BOS that is not in the text.
        names_as_ids: whether tokens are named by their ids.

    Raises:
        EngineError: when the log-probs do not fit the prompt, or one is not a number.
    """
    if len(logprobs) != len(ids) - 1 or (top and len(top) != len(logprobs)):
        raise EngineError(ErrorKind.INTERNAL, "The engine returned log-probabilities that do not fit the prompt.")
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    rows: list[Row] = []
    for position, index in enumerate(ids):
        offset = min(detokenizer.characters, len(text))
        if position == 0:
            entry = make_entry(tokenizer, detokenizer, index, 0.0, ())
            rows.append(Row(row_of(entry, names_as_ids=names_as_ids).token, entry.bytes, None, None, offset))
            if silent_bos:
                continue  # the text begins after it, for decoders that treat the start of a text in their own way
        else:
            others = top[position - 1] if top else ()
            entry = make_entry(tokenizer, detokenizer, index, logprobs[position - 1], others)
            rows.append(row_of(entry, offset, names_as_ids=names_as_ids))
        detokenizer.push(index)
    return rows


class LogprobWriter:
    """Writes the lists of one choice, in one piece or event by event: text offsets continue from call to call."""

    __slots__ = ("_decode", "_offset")

    def __init__(self, offset: int) -> None:
        """Begin at a character.

        Args:
            offset: characters before the first token that is generated: those of the prompt, which OpenAI counts also
                where it is not echoed.
        """
        self._offset = offset
        self._decode = _utf8_decoder("replace").decode

    def write(self, rows: Iterable[Row]) -> dict[str, Any]:
        """The ``logprobs`` object for the next rows."""
        tokens: list[str] = []
        token_logprobs: list[float | None] = []
        top_logprobs: list[dict[str, float] | None] = []
        text_offset: list[int] = []
        for row in rows:
            tokens.append(row.token)
            token_logprobs.append(row.logprob)
            top_logprobs.append(row.top)
            if row.offset is not None:
                text_offset.append(row.offset)
                continue
            text_offset.append(self._offset)  # that of the character which a token in the middle of one writes to
            self._offset += len(self._decode(row.bytes))
        return {
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": text_offset,
        }
