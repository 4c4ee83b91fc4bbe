"""Limits of one connection: memory, work that a server may cause, and times."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.triton.h2.http2_frames import DEFAULT_WINDOW, MAX_WINDOW
from gateway.triton.transport import MAX_RESPONSE_BYTES


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a connection, in bytes unless said otherwise.

    A message of more than half of ``window`` gets credit of its own, out of a budget of ``message`` bytes for all such
    messages of the connection until they are read. Other unread messages are bounded by ``window`` per stream and by
    ``held`` (plus ``connection_window`` on its way) per connection.

    Attributes:
        window: what a stream's server may send ahead of the reader. A server may take the protocol's default for
            granted until it has read the settings, so less than that is for tests.
        connection_window: what all streams together may have on the way. It waits for its turn before what is asked for
            next, so it is little: no request has to wait behind seconds of others' tokens.
        held: what may wait for its readers before the server gets no more credit for the connection.
        message: largest message.
        header_list: largest header list, decoded.
        header_block: largest header block, encoded.
        continuations: frames that a header block may go on for.
        idle_frames: frames that bring no request further (pings, settings, empty data, unknown types) in a row.
        unsent_answers: acknowledgements that may wait because the server does not read them.
    """

    window: int = DEFAULT_WINDOW
    connection_window: int = 2**18
    held: int = 64 * 2**20
    message: int = MAX_RESPONSE_BYTES
    header_list: int = 32 * 2**10
    header_block: int = 32 * 2**10
    continuations: int = 16
    idle_frames: int = 10_000
    unsent_answers: int = 1_000

    def __post_init__(self) -> None:
        if self.connection_window < DEFAULT_WINDOW or self.message > MAX_WINDOW // 2:
            raise ValueError("the connection's window cannot be smaller, or a message larger, than HTTP/2 permits")

    @property
    def small(self) -> int:
        """The largest message, with its head, that needs no credit of its own."""
        return self.window // 2


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of connecting and of pings in seconds, as of grpcio's channel options.

    Attributes:
        first_backoff: pause after a first attempt that failed; requests during the pause fail immediately.
        last_backoff: longest pause.
        connect: time for a connection and the server's preface.
        keepalive: silence before a ping, while requests are in flight.
        keepalive_timeout: time for any data after a ping, and for TCP's acknowledgement of sent data.
    """

    first_backoff: float = 0.2
    last_backoff: float = 2.0
    connect: float = 2.0
    keepalive: float = 60.0
    keepalive_timeout: float = 20.0
