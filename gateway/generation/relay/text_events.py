"""Server-Sent Events of text pieces, in which only the text is not known beforehand."""

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
    if not data.isascii():  # most text is ASCII; this test costs a tenth of a search
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return data


def text_events(before: bytes, after: bytes, write: Write, other: Callable[[Piece], bytes] | None = None) -> Forward:
    """Make a function that writes each piece as an event immediately, all of them in one write.

    Args:
        before: bytes of an event before its text.
        after: bytes of an event after its text.
        write: takes events on one line each (``one_line``).
        other: makes the event of a piece with more than text; None where only texts are shown.
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
    """Writes unparsed texts as events.

    Attributes:
        around: bytes of an event around its text, which stands between each two of them.
        kept: lists to which such texts are added.
    """

    around: Sequence[bytes]
    kept: Sequence[list[str]]


class PassthroughReader(Protocol):
    """A reader whose texts may pass without parsing; ``AnswerReader`` is one."""

    passed: list[str]

    @property
    def passing(self) -> object | None:
        """The state in which texts pass without parsing, a new object for each; None without one."""
        ...


def parsed_events(
    reading: PassthroughReader,
    template: Callable[[], PassthroughTemplate | None],
    write_parsed: Callable[[Sequence[Piece | str]], bytes],
    write: Write,
    *,
    joined: bool = False,
    numbers: Iterator[int] | None = None,
) -> Forward:
    """Make a function that writes the events of parsed pieces, and of bare texts that were not parsed.

    Args:
        reading: the reader of the pieces.
        template: makes the template of unparsed texts for each state; None where ``write_parsed`` makes their events.
        write_parsed: makes the events of pieces, perhaps none.
        write: takes events on one line each (``one_line``).
        joined: whether texts that come together are one event.
        numbers: the stream's next sequence numbers, where each event has one as its last field.
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
        events = write_parsed(pieces)
        return write(one_line(events)) if events else nothing_shown

    def forward(pieces: Sequence[Piece | str]) -> Drain | None:
        nonlocal state, around, kept
        if not isinstance(text := pieces[0], str):
            return made(pieces)
        if reading.passing is not state:
            if (now := template()) is None:
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
    """Make a function that writes pieces as ``text_events`` does, with a sequence number in each event.

    Args:
        before: bytes of an event before its text.
        after: bytes of an event after its text and before ``sequence_number``, its last field.
        numbers: the stream's next sequence numbers.
        write: takes events on one line each (``one_line``).
        show: takes each text that is written here.
        other: makes the event of a piece with more than text, with its number.
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
