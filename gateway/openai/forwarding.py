"""Pieces of a stream that go straight to the socket: what is run for every token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

from gateway.generation import Piece
from gateway.serving.pieces import Forward, PieceWithIds
from gateway.web.record import Room
from gateway.web.sse import one_line


def forward_texts(
    before: bytes,
    after: bytes,
    write: Callable[[bytes], Room | None],
    other: Callable[[Piece], bytes] | None = None,
) -> Forward:
    """What writes pieces at once: an event each, in one write.

    Args:
        before: what an event has before its text.
        after: what it has after it.
        write: takes events on one line each (``gateway.web.sse.one_line``).
        other: makes the event of a piece that has more than its text; None where only texts are shown.
    """
    before, after, dumps = one_line(before), one_line(after), orjson.dumps

    def event(piece: Piece | str) -> bytes:
        if isinstance(piece, str):
            text = piece
        elif other is not None and (piece.logprobs or isinstance(piece, PieceWithIds)):
            return one_line(other(piece))
        else:
            text = piece.text
        said = dumps(text)
        return before + (said if said.isascii() else one_line(said)) + after

    def forward(pieces: Sequence[Piece | str]) -> Room | None:
        if len(pieces) == 1 and isinstance(text := pieces[0], str):  # most of them: as `event`, without a call
            said = dumps(text)
            return write(before + (said if said.isascii() else one_line(said)) + after)
        return write(b"".join(map(event, pieces)))

    return forward
