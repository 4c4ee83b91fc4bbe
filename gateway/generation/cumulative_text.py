"""Makes new text from responses that each hold all of the text so far (wire contract 3.8)."""

from __future__ import annotations

import re

from gateway.generation.engine import MalformedOutputError

# A decoder may write the end of a text otherwise once it knows what follows: an unfinished character, and the spaces
# that Hugging Face's clean-up of English removes before " .", " n't", " 've" and the like.
_UNSETTLED = re.compile("(?: (?:n'?|'[vr]?)?)?\ufffd*\\Z")
_REPLACED = re.compile("\ufffd*")


class CumulativeText:
    """Follows a growing text; the parts that it returns are together the last text.

    The end of a text that the next one may change is held back. Nothing is returned that a later text does not have,
    with one exception: a byte-fallback decoder turns a run of byte tokens into U+FFFD from its first character on while
    the run ends within a character. The part of the run that was returned before stays, and the rest follows.
    """

    __slots__ = ("_given", "_latest")

    def __init__(self) -> None:
        """Start with an empty text."""
        self._given = ""  # the beginning of the texts that was given out
        self._latest = ""

    def push(self, text: str) -> str:
        """Add the text so far; returns the new part that is certain.

        Raises:
            MalformedOutputError: the text lacks a part of earlier texts.
        """
        self._latest = text
        unsettled = _UNSETTLED.search(text)
        settled = text if unsettled is None else text[: unsettled.start()]
        return "" if self._given.startswith(settled) else self._give(settled)

    def finish(self) -> str:
        """End the text; returns the held-back part.

        Raises:
            MalformedOutputError: as ``push``.
        """
        return self._give(self._latest)

    def _give(self, text: str) -> str:
        given, self._given = self._given, text
        if text.startswith(given):
            return text[len(given) :]
        pairs = enumerate(zip(given, text, strict=False))
        start = next((place for place, (one, other) in pairs if one != other), min(len(given), len(text)))
        replaced = _REPLACED.match(text, start)
        taken_back = len(given[start:].encode())  # each byte of it is a U+FFFD of its own
        if replaced is None or replaced.end() - start < taken_back:
            raise MalformedOutputError(f"a text of {len(given)} characters was shortened to {start} characters")
        return text[start + taken_back :]
