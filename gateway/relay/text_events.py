"""Server-Sent Events of pieces of text, of which all but the text is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import orjson

from gateway.generation import Piece
from gateway.relay.interface import Drain, Forward, Write, nothing_shown

_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def one_line(data: bytes) -> bytes:
    """Escape the characters in JSON that some clients take for the end of a line: U+0085, U+2028 and U+2029."""
    if not data.isascii():  # most is; this costs a tenth of a search
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return data


def text_events(before: bytes, after: bytes, write: Write, other: Callable[[Piece], bytes] | None = None) -> Forward:
    """Make a function that writes pieces at once: an event for each, all in one write.

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
        if isinstance(text := pieces[0], str):  # most of them: as `event`, without a call
            said = dumps(text)
            return write(before + (said if said.isascii() else one_line(said)) + after)
        return write(event(text))

    return forward


def made_events(make: Callable[[Sequence[Piece | str]], bytes], write: Write) -> Forward:
    """Make a function that writes what becomes of pieces, where more than their text decides.

    Args:
        make: makes the events of pieces, or none.
        write: takes events on one line each (``one_line``).
    """

    def forward(pieces: Sequence[Piece | str]) -> Drain | None:
        events = make(pieces)
        return write(one_line(events)) if events else nothing_shown

    return forward


def numbered_text_events(
    before: bytes,
    after: bytes,
    numbers: Iterator[int],
    write: Write,
    show: Callable[[str], object],
    other: Callable[[Piece], bytes],
) -> Forward:
    """Make a function that writes pieces at once, as ``text_events`` does, each event with a number of its own.

    Args:
        before: what an event has before its text.
        after: what it has after its text and before ``sequence_number``, its last field.
        numbers: the next ones of the stream.
        write: takes events on one line each (``one_line``).
        show: takes each text that is written here.
        other: makes the event of a piece that has more than its text, its number too.
    """
    before, dumps = one_line(before), orjson.dumps
    after = one_line(after) + b',"sequence_number":%d}\n\n'

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
