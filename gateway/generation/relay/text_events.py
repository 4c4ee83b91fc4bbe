"""Server-Sent Events of pieces of text, of which all but the text is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import orjson

from gateway.generation import Piece
from gateway.generation.relay.interface import Drain, Forward, Write, nothing_shown

_NUMBERED = b',"sequence_number":%d}\n\n'
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def one_line(data: bytes) -> bytes:
    """Escape the characters in JSON that some clients take for the end of a line: U+0085, U+2028 and U+2029."""
    if not data.isascii():  # most is; this costs a tenth of a search
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return data


def text_events(before: bytes, after: bytes, write: Write, other: Callable[[Piece], bytes] | None = None) -> Forward:
    """Make a function that writes pieces immediately, an event for each and all in one write.

    Args:
        before: what an event has before its text.
        after: what it has after its text.
        write: takes events on one line each (``one_line``).
        other: makes the event of a piece that has more than its text; None where only texts are shown.
    """
    if not (before.isascii() and after.isascii()):
        before, after = one_line(before), one_line(after)
    dumps = orjson.dumps

    def event(piece: Piece | str) -> bytes:
        if isinstance(piece, str):
            text = piece
        elif other is not None and (piece.logprobs or piece.ids is not None):
            return one_line(other(piece))
        else:
            text = piece.text
        said = dumps(text)
        return before + (said if said.isascii() else one_line(said)) + after

    def forward(pieces: Sequence[Piece | str]) -> Drain | None:
        if len(pieces) > 1:
            return write(b"".join(map(event, pieces)))
        piece = pieces[0]  # most of them: as `event`, without a call
        if isinstance(piece, str):
            said = dumps(piece)
            return write(before + (said if said.isascii() else one_line(said)) + after)
        if other is not None and piece.logprobs:
            made = other(piece)
            return write(made if made.isascii() else one_line(made))
        return write(event(piece))

    return forward


class PassthroughTemplate(NamedTuple):
    """How texts are shown that pass by a parser.

    Attributes:
        around: what an event has around its text, which stands between each two of them.
        kept: the lists to which such texts are added.
    """

    around: Sequence[bytes]
    kept: Sequence[list[str]]


class PassthroughReader(Protocol):
    """A reader past whose parser texts may pass; ``AnswerReader`` is one."""

    passed: list[str]

    @property
    def passing(self) -> object | None:
        """The state in which they do, another object each time."""
        ...


def parsed_events(
    reading: PassthroughReader,
    shown: Callable[[], PassthroughTemplate | None],
    other: Callable[[Sequence[Piece | str]], bytes],
    write: Write,
    *,
    joined: bool = False,
    numbers: Iterator[int] | None = None,
) -> Forward:
    """Make a function that writes what becomes of pieces that are parsed: bare texts have passed by the parser.

    Args:
        reading: has read the pieces.
        shown: tells how texts are shown while they pass, for each state anew; None: ``other`` makes their events.
        other: makes the events of pieces, or none; not all of them show what they say.
        write: takes events on one line each (``one_line``).
        joined: whether texts that come together are one event.
        numbers: the next ones of the stream, where each event has one as its last field.
    """
    state: object | None = None
    around: Sequence[bytes] = ()
    kept: Sequence[list[str]] = ()
    dumps = orjson.dumps

    def event(text: str) -> bytes:
        said = dumps(text)
        written = (said if said.isascii() else one_line(said)).join(around)
        return written if numbers is None else written + _NUMBERED % next(numbers)

    def made(pieces: Sequence[Piece | str]) -> Drain | None:
        events = other(pieces)
        return write(one_line(events)) if events else nothing_shown

    def forward(pieces: Sequence[Piece | str]) -> Drain | None:
        nonlocal state, around, kept
        if not isinstance(text := pieces[0], str):
            return made(pieces)
        if reading.passing is not state:
            if (now := shown()) is None:
                return made(pieces)
            state, around, kept = reading.passing, [*map(one_line, now.around)], now.kept
        reading.passed.clear()
        texts: Sequence[str] = pieces  # type: ignore[assignment] # as the first one is
        if joined and len(texts) > 1:
            texts = [text := "".join(texts)]
        for keeper in kept:
            keeper.extend(texts)
        if len(texts) > 1:
            return write(b"".join(map(event, texts)))
        said = dumps(text)  # most of them: as `event`, without a call
        written = (said if said.isascii() else one_line(said)).join(around)
        return write(written if numbers is None else written + _NUMBERED % next(numbers))

    return forward


def numbered_text_events(
    before: bytes,
    after: bytes,
    numbers: Iterator[int],
    write: Write,
    show: Callable[[str], object],
    other: Callable[[Piece], bytes],
) -> Forward:
    """Make a function that writes pieces as ``text_events`` does, each event with a number of its own.

    Args:
        before: what an event has before its text.
        after: what it has after its text and before ``sequence_number``, its last field.
        numbers: the next ones of the stream.
        write: takes events on one line each (``one_line``).
        show: takes each text that is written here.
        other: makes the event of a piece that has more than its text, its number too.
    """
    before, dumps = one_line(before), orjson.dumps
    after = one_line(after) + _NUMBERED

    def event(piece: Piece | str) -> bytes:
        if not isinstance(piece, str):
            if piece.logprobs or piece.ids is not None:
                return one_line(other(piece))
            piece = piece.text
        show(piece)
        said = dumps(piece)
        return before + (said if said.isascii() else one_line(said)) + after % next(numbers)

    def forward(pieces: Sequence[Piece | str]) -> Drain | None:
        if len(pieces) == 1 and isinstance(text := pieces[0], str):  # most of them: as `event`, without a call
            show(text)
            said = dumps(text)
            return write(before + (said if said.isascii() else one_line(said)) + after % next(numbers))
        return write(b"".join(map(event, pieces)))

    return forward
