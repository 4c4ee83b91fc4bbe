"""The text of an answer as a grammar reads it, from left to right, waiting for the rest.

Family parsers are generators. They call the methods here with ``yield from``; a bare ``yield`` inside waits for more
text. So a parser reads like a grammar and can still be fed a character at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import TypeAlias, TypeVar

from gateway.text.families.json_scanner import JsonScanner
from gateway.text.families.markers import Markers, markers_of

_T = TypeVar("_T")
Steps: TypeAlias = Generator[None, None, _T]
"""A part of a parser that returns a ``_T`` once enough text has arrived."""

Emit: TypeAlias = Callable[[str], None]
"""Takes text as it becomes certain."""

SPACE = " \t\r\n"
_ENDLESS = 1 << 60


class BrokenCallError(Exception):
    """The text from the next character on is not a call of a known tool."""


@cache
def pieces_of(text: str) -> tuple[str, ...]:
    """Split a text into its tags and the texts between them, without whitespace."""
    return tuple(piece.strip() for piece in re.findall(r"<[^<>]*>?|[^<]+", text) if piece.strip())


def need(value: _T | None) -> _T:
    """Return a found value; None, False or an empty one breaks the call: ``BrokenCallError``."""
    if not value:
        raise BrokenCallError
    return value


class TextSource:
    """The characters of one answer.

    Work is linear: text is dropped once it is read, and less than a marker waits.
    """

    __slots__ = ("_at", "_raw", "_text", "awaited", "cut", "ended", "examined", "taker")

    def __init__(self) -> None:
        self._text, self._at = "", 0
        self._raw: list[str] | None = None
        self.ended = False  # whether no more text will come
        self.cut = False  # whether the token limit ended it; valid once it has ended
        self.examined = 0  # characters looked at, each time that one was, but the beginning of a marker that waits once
        self.awaited = markers_of()  # the markers that a parser waits for; valid where there is a taker
        # Takes the next text directly while the parser only waits for a marker and holds nothing back.
        self.taker: Emit | None = None

    def push(self, text: str) -> None:
        """Add text."""
        self._text, self._at = self._text[self._at :] + text, 0

    def end(self, *, cut: bool) -> None:
        """End the text."""
        self.ended, self.cut = True, cut

    def record(self, begun: str = "") -> None:
        """Record ``begun`` and the text that is read from here on, in place of any other record."""
        self._raw = [begun]

    @property
    def recorded_length(self) -> int:
        """The number of recorded characters."""
        return sum(map(len, self._raw or ()))

    def recorded(self) -> str:
        """End the record; returns its text, with all unread text of a cut answer."""
        if self.cut:
            self._consume(len(self._text))
        raw, self._raw = self._raw, None
        return "".join(raw or ())

    def unread(self, text: str) -> None:
        """Put back the text that was read last."""
        self._text, self._at = text + self._text[self._at :], 0
        if self._raw and self._raw[-1].endswith(text):
            self._raw[-1] = self._raw[-1].removesuffix(text)

    def more(self) -> Steps[bool]:
        """Wait for an unread character; False when there is none before the end."""
        while self._at == len(self._text):
            if self.ended:
                return False
            yield
        return True

    def peek(self) -> Steps[str]:
        """The next character, which stays unread; empty at the end."""
        yield from self.more()
        self.examined += 1
        return self._text[self._at : self._at + 1]

    def ahead(self) -> Steps[str]:
        """Read whitespace; returns the next character, which stays unread, empty at the end."""
        yield from self.space()
        return (yield from self.peek())

    def take(self) -> Steps[str]:
        """Read one character; empty at the end."""
        character = yield from self.peek()
        self._consume(self._at + len(character))
        return character

    def space(self) -> Steps[str]:
        """Read and return whitespace."""
        return (yield from self.run(SPACE))

    def run(self, characters: str, limit: int = _ENDLESS) -> Steps[str]:
        """Read consecutive characters of a set, ``limit`` at most."""
        pieces: list[str] = []
        pattern = _run_of(characters)
        while limit and (yield from self.more()):
            start, length = self._at, len(self._text)
            end: int = pattern.match(self._text, start, start + limit).end()  # type: ignore[union-attr]  # it matches
            self.examined += min(end + 1, length) - start
            pieces.append(self._consume(end))
            limit -= end - start
            if end < length:
                break
        return "".join(pieces)

    def literal(self, text: str) -> Steps[bool]:
        """Read ``text`` if it comes next; otherwise read nothing."""
        return not text or (yield from self.choice(text)) is not None

    def spaced(self, *texts: str) -> Steps[str | None]:
        """Read whitespace, and then one of ``texts`` as ``choice`` does."""
        yield from self.space()
        return (yield from self.choice(*texts))

    def expect(self, *texts: str) -> Steps[None]:
        """Read texts one after the other, with whitespace before each; a missing one breaks the call."""
        for text in filter(None, texts):
            need((yield from self.spaced(text)))

    def choice(self, *texts: str) -> Steps[str | None]:
        """Read the text of several that comes next; otherwise read nothing.

        No text may begin with another one.
        """
        left: Sequence[str] = texts
        while True:
            room = len(self._text) - self._at
            left = [text for text in left if self._text.startswith(text[:room], self._at)]
            if left and len(left[0]) <= room:
                self.examined += len(left[0])
                return self._consume(self._at + len(left[0]))
            if self.ended or not left:
                self.examined += 1
                return None
            yield

    def at_end(self, *texts: str) -> Steps[bool]:
        """Read whitespace; returns whether one of the texts, which stay unread, or the end of the answer follows.

        The end of a cut answer does not count.
        """
        yield from self.space()
        found = yield from self.choice(*texts)
        if found:
            self.unread(found)
        return bool(found) or (self._at == len(self._text) and self.ended and not self.cut)

    def seek(self, markers: Markers, start: int = 0) -> Steps[tuple[str, str]]:
        """Look ahead for the first marker; returns the text before it and the marker, which is empty at the end.

        Everything stays unread. ``start``: characters to skip.
        """
        looked = start
        while True:
            at, marker = markers.find(self._text, self._at + looked)
            self.examined += len(marker) + at - self._at - looked
            if marker or self.ended:
                return self._text[self._at + start : at if marker else len(self._text)], marker
            looked = at - self._at
            yield

    def read(self, length: int) -> str:
        """Read characters that ``seek`` has seen."""
        return self._consume(self._at + length)

    def cut_in(self, text: str) -> bool:
        """Read the rest of an answer that the token limit has cut inside of ``text``; returns whether it was."""
        rest = self._text[self._at :]
        found = self.cut and 1 < len(rest) < len(text) and text.startswith(rest)
        if found:
            self._consume(len(self._text))
        return found

    def until(self, markers: Markers, emit: Emit) -> Steps[str | None]:
        """Read up to and including the first marker; returns the marker, None at the end of the text.

        ``emit`` takes the text before it. An end of the text that may begin a marker is held back, and dropped where
        the token limit has cut the answer inside of one; see ``Markers.cut_off``.
        """
        held = 0
        while True:
            if not held and self._raw is None:
                self.awaited, self.taker = markers, emit
            while (new := len(self._text) - self._at - held) == 0 and not self.ended:
                yield
            self.taker = None
            if not new:
                break
            start, marker = markers.find(self._text, self._at)
            self.examined += (start + len(marker) - self._at if marker else held + new) - held
            if start > self._at:
                emit(self._consume(start))
            if marker:
                return self._consume(start + len(marker))
            held = len(self._text) - start
        shown = self._consume(len(self._text))
        shown = markers.cut_off(shown) if self.cut else shown
        if shown:
            emit(shown)
        return None

    def text_until(self, *texts: str) -> Steps[tuple[str, str | None]]:
        """Read up to and including the first of the texts; returns the text before it, and the text as of ``until``."""
        pieces: list[str] = []
        found = yield from self.until(markers_of(*texts), pieces.append)
        before = "".join(pieces)
        self.examined += len(before)
        return before, found

    def json(self, emit: Emit = lambda _: None) -> Steps[None]:
        """Read one JSON value, whose text ``emit`` takes; other text breaks the call.

        Unescaped control characters within strings, such as line ends, are escaped.
        """
        scanner = JsonScanner()
        while not scanner.complete and (yield from self.more()):
            end = scanner.scan(self._text, self._at)
            self.examined += min(end + 1, len(self._text)) - self._at
            if end > self._at:
                emit(self._consume(end))
            if scanner.failed:
                need(scanner.forgive(self._text[end]))
                emit(json.dumps(self._consume(end + 1))[1:-1])
        need(scanner.end())

    def _consume(self, end: int) -> str:
        text, self._at = self._text[self._at : end], end
        if self._raw is not None and text:
            self._raw.append(text)
        return text


@cache
def _run_of(characters: str) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(characters)}]*")
