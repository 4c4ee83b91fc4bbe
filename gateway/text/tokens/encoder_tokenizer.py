"""The tokenizer of an encoder: texts and pairs to token ids with the model's special tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tokenizers

from gateway.text.tokens.segments import count_beyond
from gateway.text.tokens.tokenizer import Tokenizer

Truncation = Literal["none", "start", "end"]
"""The side on which a text that is too long is cut; ``none``: it is rejected."""

_PADS = "[PAD]", "<pad>"
_BEHIND_PADDING = {"camembert", "longformer", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"}
"""Kinds of models whose positions count from the padding id + 1."""
_ALWAYS_COUNTED = 65536  # characters of an input, which may have few tokens: normalizers drop spaces


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """One input of an encoder.

    Attributes:
        text: the text, or the first one of a pair (the query).
        pair: the second text of a pair (the document); None for a single text.
        ids: token ids of the text or the pair with its special tokens; empty where no tokenizer is known.
        type_ids: for each id 0 in the first text and 1 in the second.
        prefix: characters at the beginning of ``text`` that are not cut.
        position: the position of the first token.
    """

    text: str
    pair: str | None = None
    ids: Sequence[int] = ()
    type_ids: Sequence[int] = ()
    prefix: int = 0
    position: int = 0


class InputTooLongError(Exception):
    """An input with more tokens than its model takes.

    Attributes:
        index: index of the input.
        tokens: tokens of the input; of one that is far too long, a lower bound.
        limit: most tokens of an input.
        of_query: whether the first text of a pair leaves no room for the second.
    """

    def __init__(self, index: int, tokens: int, limit: int, *, of_query: bool = False) -> None:
        super().__init__(f"{tokens} tokens > {limit} maximum")
        self.index = index
        self.tokens = tokens
        self.limit = limit
        self.of_query = of_query


class EncoderTokenizer:
    """Tokenizes the inputs of an encoder.

    Immutable and safe to share between threads.

    Args:
        tokenizer: the model's tokenizer.

    Attributes:
        pad_id: the token id for padding; 0 where the tokenizer has none.
        plain: that tokenizer, which adds no special tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.plain = tokenizer
        self._backend: tokenizers.Tokenizer = tokenizer.backend
        self.vocab_size = tokenizer.vocab_size
        self._longest_token = tokenizer.longest_token
        self.pad_id = _pad_id(tokenizer)
        self._position = self.pad_id + 1 if tokenizer.model_type in _BEHIND_PADDING else 0

    @classmethod
    def from_folder(cls, folder: Path) -> EncoderTokenizer:
        """Load a folder as ``Tokenizer.from_folder`` does, with the same errors."""
        return cls(Tokenizer.from_folder(folder))

    def special_tokens(self, *, pair: bool) -> int:
        """The number of special tokens of a text or a pair."""
        return self._backend.num_special_tokens_to_add(is_pair=pair)

    def tokenize(
        self,
        inputs: Sequence[EncoderInput],
        most: int | None = None,
        truncation: Truncation = "none",
        document_tokens: int | None = None,
        *,
        total: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[EncoderInput]:
        """Add token ids to texts and pairs; inputs with ids stay.

        Args:
            inputs: the inputs.
            most: most tokens of one input, special tokens included; None for any number.
            truncation: how longer inputs are cut. Of a pair the second text is cut.
            document_tokens: most tokens of the second text of a pair, which is cut before; None for any number.
            total: tokens of all inputs, after which the rest is left out.
            stopped: asked before each input whether to leave out the rest.

        Raises:
            InputTooLongError: an input is longer, and must not or cannot be cut.
        """
        room = (document_tokens or 0) + self.special_tokens(pair=False)
        found: list[EncoderInput] = []
        count = 0
        for index, given in enumerate(inputs):
            if count > total or stopped():
                break
            each = given
            if document_tokens is not None and (truncation == "start" or document_tokens < (most or total)):
                alone = EncoderInput(given.pair or "")
                each = EncoderInput(given.text, self._tokenized(index, alone, room, "end", stopped).text)
            found.append(self._tokenized(index, each, most, truncation, stopped, total))
            count += len(found[-1].ids)
        return found

    def _tokenized(
        self,
        index: int,
        given: EncoderInput,
        most: int | None,
        truncation: Truncation,
        stopped: Callable[[], bool],
        total: int = 0,
    ) -> EncoderInput:
        """Add token ids to one input of at most ``most`` tokens; without it ``total`` bounds what is read."""
        each, encoding = dataclasses.replace(given, position=self._position), None
        if not given.ids:
            rough = self._roughly_cut(index, each, most or total, truncation, stopped)
            encoding = self._encode(rough.text, rough.pair)
            each = dataclasses.replace(rough, ids=encoding.ids, type_ids=encoding.type_ids)
        return each if most is None or len(each.ids) <= most else self._cut(index, each, encoding, most, truncation)

    def _encode(self, text: str, pair: str | None) -> tokenizers.Encoding:
        """Tokenize one input, as a batch of one: other threads run meanwhile."""
        (encoding,) = self._backend.encode_batch([text if pair is None else (text, pair)])
        return encoding

    def _roughly_cut(
        self, index: int, whole: EncoderInput, most: int, truncation: Truncation, stopped: Callable[[], bool]
    ) -> EncoderInput:
        """Leave out, or reject, what is far too long: a token takes memory, and a character that is cut takes none."""
        query, last = ("", whole.text) if whole.pair is None else (whole.text, whole.pair)
        room = max(most * self._longest_token, _ALWAYS_COUNTED) - len(query)
        if len(last) > room:
            if truncation == "none" or room <= 0:
                tokens = -(-(len(query) + len(last)) // self._longest_token)
                raise InputTooLongError(index, max(tokens, most + 1), most, of_query=room <= 0)
            begin = max(len(last) - room, whole.prefix)
            return _with_last(whole, last[:room] if truncation == "end" else last[: whole.prefix] + last[begin:])
        if truncation == "none" and len(last) > max(most, _ALWAYS_COUNTED):
            tokens = count_beyond(self._backend, last, most + most // 8, stopped)
            if tokens > most + most // 8:
                raise InputTooLongError(index, tokens, most)
        return whole

    def _cut(
        self, index: int, whole: EncoderInput, encoding: tokenizers.Encoding | None, most: int, truncation: Truncation
    ) -> EncoderInput:
        """Cut an input so that at most so many tokens are left: its last text between two tokens, or token ids."""
        if encoding is None:
            if truncation == "none":
                raise InputTooLongError(index, len(whole.ids), most)
            kept_ids = slice(most) if truncation == "end" else slice(-most, None)
            return dataclasses.replace(whole, ids=whole.ids[kept_ids], type_ids=whole.type_ids[kept_ids])
        last, sequence = (whole.text, 0) if whole.pair is None else (whole.pair, 1)
        places = zip(encoding.offsets, encoding.sequence_ids, strict=True)
        offsets = [offset for offset, of in places if of == sequence and offset[1] > whole.prefix]
        room = len(offsets) - (len(whole.ids) - most)
        of_query = whole.pair is not None and room <= 0
        while truncation != "none" and room > 0:
            kept = offsets[:room] if truncation == "end" else offsets[-room:]
            cut = _with_last(whole, last[: whole.prefix] + last[max(whole.prefix, kept[0][0]) : kept[-1][1]])
            encoding = self._encode(cut.text, cut.pair)
            if len(encoding.ids) <= most:
                return dataclasses.replace(cut, ids=encoding.ids, type_ids=encoding.type_ids)
            room -= len(encoding.ids) - most
        raise InputTooLongError(index, len(whole.ids), most, of_query=of_query)


def _pad_id(tokenizer: Tokenizer) -> int:
    """The id by which a tokenizer pads, else that of its padding token."""
    named = [tokenizer.special_tokens.get("pad_token"), *_PADS]
    ids = (tokenizer.backend.token_to_id(each) for each in named if each is not None)
    return next((each for each in (tokenizer.pad_id, *ids) if each is not None), 0)


def _with_last(whole: EncoderInput, text: str) -> EncoderInput:
    """An input with another last text."""
    return dataclasses.replace(whole, text=text) if whole.pair is None else dataclasses.replace(whole, pair=text)
