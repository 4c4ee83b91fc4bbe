"""The tokenizer of an encoder: texts and pairs to token ids with the model's special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tokenizers

from gateway.text.tokens.tokenizer import Tokenizer

Truncation = Literal["none", "start", "end"]
"""The side on which a text that is too long is cut; ``none``: it is rejected."""


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """One input of an encoder.

    Attributes:
        text: the text, or the first one of a pair (the query).
        pair: the second text of a pair (the document); None for a single text.
        ids: token ids of the text or the pair with its special tokens; empty where no tokenizer is known.
        type_ids: for each id 0 in the first text and 1 in the second.
    """

    text: str
    pair: str | None = None
    ids: Sequence[int] = ()
    type_ids: Sequence[int] = ()


class InputTooLongError(Exception):
    """An input with more tokens than its model takes.

    Attributes:
        index: index of the input.
        tokens: tokens of the input.
        most: most tokens of an input.
    """

    def __init__(self, index: int, tokens: int, most: int) -> None:
        super().__init__(f"{tokens} tokens > {most} maximum")
        self.index = index
        self.tokens = tokens
        self.most = most


class EncoderTokenizer:
    """Tokenizes the inputs of an encoder.

    Immutable and safe to share between threads.

    Args:
        tokenizer: the model's tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._backend: tokenizers.Tokenizer = tokenizer.backend
        self.vocab_size = tokenizer.vocab_size

    @classmethod
    def from_folder(cls, folder: Path) -> EncoderTokenizer:
        """Load a folder as ``Tokenizer.from_folder`` does, with the same errors."""
        return cls(Tokenizer.from_folder(folder))

    def tokenize(
        self,
        inputs: Sequence[EncoderInput],
        most: int | None = None,
        truncation: Truncation = "none",
        document_tokens: int | None = None,
    ) -> list[EncoderInput]:
        """Add token ids to texts and pairs; inputs with ids stay.

        Args:
            inputs: the inputs.
            most: most tokens of one input, special tokens included; None for any number.
            truncation: how longer inputs are cut. Of a pair the second text is cut.
            document_tokens: most tokens of the second text of a pair, which is cut before; None for any number.

        Raises:
            InputTooLongError: an input is longer, and must not or cannot be cut.
        """
        if document_tokens is not None:
            room = document_tokens + self._backend.num_special_tokens_to_add(is_pair=False)
            documents = self.tokenize([EncoderInput(each.pair or "") for each in inputs], room, "end")
            inputs = [EncoderInput(each.text, cut.text) for each, cut in zip(inputs, documents, strict=True)]
        texts = [each.text if each.pair is None else (each.text, each.pair) for each in inputs if not each.ids]
        encoded = iter(self._backend.encode_batch(texts, add_special_tokens=True))
        found = []
        for index, each in enumerate(inputs):
            if not each.ids:
                encoding = next(encoded)
                each = EncoderInput(each.text, each.pair, encoding.ids, encoding.type_ids)  # noqa: PLW2901
            if most is not None and len(each.ids) > most:
                each = self._cut(index, each, most, truncation)  # noqa: PLW2901
            found.append(each)
        return found

    def _cut(self, index: int, whole: EncoderInput, most: int, truncation: Truncation) -> EncoderInput:
        """Cut the last text of an input between two tokens, so that the rest has at most so many."""
        last = whole.text if whole.pair is None else whole.pair
        offsets = self._backend.encode(last, add_special_tokens=False).offsets
        room = len(offsets) - (len(whole.ids) - most)
        while truncation != "none" and room > 0 and (whole.text or whole.pair):
            kept = offsets[:room] if truncation == "end" else offsets[-room:]
            text = last[kept[0][0] : kept[-1][1]]
            encoding = self._backend.encode(*((text,) if whole.pair is None else (whole.text, text)))
            if len(encoding.ids) <= most:
                first, second = (text, None) if whole.pair is None else (whole.text, text)
                return EncoderInput(first, second, encoding.ids, encoding.type_ids)
            room -= len(encoding.ids) - most
        raise InputTooLongError(index, len(whole.ids), most)
