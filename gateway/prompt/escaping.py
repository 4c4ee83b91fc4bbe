"""Control-token text from a user must stay text.

Before rendering, a marker (a Unicode noncharacter that occurs nowhere in the data) goes into each occurrence of a
control token's text, behind its first character. After rendering, an occurrence without a marker is the template's
own; the stretches between those that hold a marker came from a user and are tokenized as plain text.

Not covered: a template that puts a control token's text together from pieces of data, such as a role between ``<|``
and ``|>``. Roles are checked before they get here; shipped templates do this with nothing else.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.tokens.any_of import any_of

_NONCHARACTERS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
# Only data that holds every noncharacter gets this far.
_PRIVATE = range(0xF0000, 0xFFFFE)
_PIECE = 65536  # characters


def is_marker(character: str) -> bool:
    """Whether the character may be a marker: a noncharacter, or of the private plane that stands in for them."""
    return "\ufdd0" <= character <= "\ufdef" or "\U000f0000" <= character <= "\U000ffffd"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a rendered prompt.

    Attributes:
        text: without markers.
        literal: whether control-token text in it must be tokenized as plain text.
    """

    text: str
    literal: bool


class ControlEscaper:
    """Finds the control tokens' texts of one tokenizer."""

    def __init__(self, control_tokens: Sequence[str]) -> None:
        """Prepare for ``control_tokens``; an empty sequence means that nothing is ever escaped."""
        longest_first = sorted(set(control_tokens), key=len, reverse=True)
        self._pattern = any_of(longest_first)
        self._tokens = longest_first
        self._longest = len(longest_first[0]) if longest_first else 0

    def occurs_in(self, data: Any) -> bool:
        """Whether any string in nested lists and mappings holds a control token's text."""
        pattern = self._pattern
        if pattern is None:
            return False
        for text in _strings(data):
            if pattern.search(text) if len(text) <= _PIECE else self._search(pattern, text, 0):
                return True
        return False

    def mark(self, data: Any, marker: str) -> Any:
        """Copy nested data with ``marker`` behind the first character of each occurrence, overlapping ones too."""
        if isinstance(data, str):
            return self._mark_text(data, marker)
        if isinstance(data, Mapping):
            return {self.mark(key, marker): self.mark(value, marker) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.mark(item, marker) for item in data]
        return data

    def split(self, rendered: str, marker: str) -> list[Stretch]:
        """Cut a rendered text into stretches, alternately as the template wrote it and as plain text.

        Their texts together are the rendered text without markers. A plain stretch reaches from one control token of
        the template to the next, because tokenizers cut there anyway: escaping moves no other token boundary.
        """
        # A control token of one character has no inside: behind it, the marker tells.
        own = re.compile("|".join(re.escape(t) + (f"(?!{marker})" if len(t) == 1 else "") for t in self._tokens))
        stretches: list[Stretch] = []
        trusted, position = "", 0
        while True:
            match = self._search(own, rendered, position)
            start, end = match.span() if match else (len(rendered),) * 2
            between = rendered[position:start]
            if marker in between:
                stretches += [Stretch(trusted, False)] if trusted else []
                stretches.append(Stretch(between.replace(marker, ""), True))
                trusted = ""
            else:
                trusted += between
            trusted += rendered[start:end]
            position = end
            if match is None:
                break
        return [*stretches, Stretch(trusted, False)] if trusted else stretches

    def _mark_text(self, text: str, marker: str) -> str:
        if self._pattern is None:
            return text
        parts, position = [], 0
        match = self._search(self._pattern, text, 0)
        while match is not None:
            parts += [text[position : match.start() + 1], marker]
            position = match.start() + 1
            match = self._search(self._pattern, text, position)
        return "".join([*parts, text[position:]])

    def _search(self, pattern: re.Pattern[str], text: str, position: int) -> re.Match[str] | None:
        """The next match, looked for in pieces: no other thread runs while a pattern is."""
        while position < len(text):
            edge = position + _PIECE
            match = pattern.search(text, position, edge + self._longest)
            if match is not None and match.start() < edge:
                return match
            position = edge
        return None


def unused_marker(*data: Any) -> str:
    """A character that no string of the data holds."""
    used: set[str] = set()
    for text in _strings(data):
        for start in range(0, 0 if text.isascii() else len(text), _PIECE):
            used.update(text[start : start + _PIECE])
    candidates = itertools.chain(_NONCHARACTERS, map(chr, _PRIVATE))
    return next(character for character in candidates if character not in used)


def _strings(data: Any) -> list[str]:
    """Every string in nested lists and mappings, keys included."""
    found: list[str] = []
    pending = [data]
    for item in pending:  # which grows meanwhile
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            pending += item
        elif isinstance(item, (dict, Mapping)):  # a dict is told in C
            pending += item
            pending += item.values()
    return found
