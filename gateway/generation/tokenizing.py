"""Sentences by which the tokenizer of a server is compared with the one here."""

from __future__ import annotations

from typing import NamedTuple

SENTENCES = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "Grüße aus Köln — 東京は晴れです。",
    "def f(x):\n    return {'a': x ** 2}  # naïve",
)


class TokenizedSentences(NamedTuple):
    """What a server's tokenizer makes of ``SENTENCES``.

    Attributes:
        ids: of each.
        end_id: that ends an answer; None where it does not say.
    """

    ids: tuple[tuple[int, ...], ...]
    end_id: int | None = None
