"""Sentences by which the tokenizers of the server and of the gateway are compared."""

from __future__ import annotations

from typing import NamedTuple

SENTENCES = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "Grüße aus Köln — 東京は晴れです。",
    "def f(x):\n    return {'a': x ** 2}  # naïve",
)


class TokenizedSentences(NamedTuple):
    """The token ids that a server's tokenizer makes from ``SENTENCES``.

    Attributes:
        ids: ids of each sentence.
        end_id: id that ends an answer; None where it is unknown.
    """

    ids: tuple[tuple[int, ...], ...]
    end_id: int | None = None
