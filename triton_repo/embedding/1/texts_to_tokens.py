"""Texts and pairs of texts to token ids, of at most as many tokens as the model reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from bert_encoder import LoadError, Text

_DIRECTIONS = {"START": "left", "END": "right"}


class InputError(ValueError):
    """A request's input is wrong; the message is meant for the client."""


class TextsToTokens:
    """The tokenizer of one model folder.

    Args:
        folder: it has ``tokenizer.json``, which adds the special tokens.
        max_seq_len: tokens of a text, or of a pair together, at most, special tokens included.

    Raises:
        LoadError: no ``tokenizer.json``, or none that can be read.
    """

    def __init__(self, folder: Path, max_seq_len: int) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
            raise LoadError(f"{folder / 'tokenizer.json'} cannot be read: {error}") from None
        self._tokenizer.no_padding()
        self._max_seq_len = max_seq_len
        self.vocab = self._tokenizer.get_vocab_size(with_added_tokens=True)

    def read(self, rows: Sequence[Sequence[str]], truncate: str) -> list[Text]:
        """Tokenize the texts of a request.

        Args:
            rows: of one text, or of a pair.
            truncate: of one that is too long, ``START`` or ``END`` is cut off, of a pair's longer text first; with
                ``NONE`` it is an error.

        Raises:
            InputError: one is too long, or ``truncate`` has another value.
        """
        if truncate in _DIRECTIONS:
            self._tokenizer.enable_truncation(self._max_seq_len, direction=_DIRECTIONS[truncate])
        elif truncate == "NONE":
            self._tokenizer.no_truncation()
        else:
            raise InputError(f"truncate is {truncate!r}; it may be NONE, START or END")
        encodings = self._tokenizer.encode_batch([row[0] if len(row) == 1 else tuple(row) for row in rows])
        for index, encoding in enumerate(encodings):
            if len(encoding) > self._max_seq_len:
                raise InputError(
                    f"text {index} of the request has {len(encoding)} tokens; the model reads at most "
                    f"{self._max_seq_len}: shorten it, or set the request parameter truncate to START or END"
                )
        return [(encoding.ids, encoding.type_ids) for encoding in encodings]
