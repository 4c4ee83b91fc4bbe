"""New text out of responses that each hold all of the text so far (wire contract 3.8)."""

from __future__ import annotations

import re

from gateway.generation.engine import MalformedOutputError

# A decoder may write the end of a text otherwise once it knows what follows: an unfinished character, and the spaces
# that Hugging Face's clean-up of English removes before " .", " n't", " 've" and the like.
_UNSETTLED = re.compile("(?: (?:n'?|'[vr]?)?)?\ufffd*\\Z")
_REPLACED = re.compile("\ufffd*")


class CumulativeText:
    """Follows a text that grows: the parts that it gives out are together the last text that it was given.

    The end of a text that the next one may change is held back. Nothing is given out that a later text does not have,
    with one exception: a byte-fallback decoder turns a run of byte tokens into U+FFFD from its first character on while
    the run ends within a character. What was given out of the run before stands, and the rest of it follows.
    """

    __slots__ = ("_given", "_latest")

    def __init__(self) -> None:
        """Start with an empty text."""
        self._given = ""  # the beginning of the texts that was given out
        self._latest = ""

    def push(self, text: str) -> str:
        """Take the text so far; return what is new of it and certain.

        Raises:
            MalformedOutputError: it lacks what earlier texts had.
        """
        self._latest = text
        unsettled = _UNSETTLED.search(text)
        settled = text if unsettled is None else text[: unsettled.start()]
        return "" if self._given.startswith(settled) else self._give(settled)

    def finish(self) -> str:
        """End the text; return what was held back of it.

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
