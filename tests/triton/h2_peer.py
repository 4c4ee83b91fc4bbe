"""The core of h2 with a server's hands on it: no sockets, frame by frame."""

from __future__ import annotations

import struct
from typing import NamedTuple

import hpack

from gateway.triton.h2.headers import RequestHeaders
from gateway.triton.h2.http2_connection import Http2Connection
from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.h2.limits import Limits
from tests.triton.raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, message


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def number(self) -> int:
        """The payload's last four octets: an increment, an error code."""
        return int(struct.unpack(">I", self.payload[-4:])[0])


def split(data: bytes) -> list[Frame]:
    """The frames in some bytes, which must be whole."""
    frames = []
    while data:
        length = int.from_bytes(data[:3], "big")
        frames.append(Frame(data[3], data[4], struct.unpack(">I", data[5:9])[0], data[9 : 9 + length]))
        assert len(frames[-1].payload) == length
        data = data[9 + length :]
    return frames


def u32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def setting(key: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", key, value))


class Wire:
    """A connection (``core``) that has exchanged greetings with its server; ``greeting`` is what it said first."""

    def __init__(self, limits: Limits | None = None, *, greet: bool = True) -> None:
        self.core = Http2Connection(RequestHeaders("triton:8001"), limits or Limits())
        self.encoder = hpack.Encoder()
        self.core.start()
        said = b"".join(self.core.take_output(2**30))
        assert said.startswith(PREFACE)
        self.greeting = split(said[len(PREFACE) :])
        if greet:
            self.gets(frame(SETTINGS, 0, 0), frame(SETTINGS, 1, 0))
            self.sent()

    def gets(self, *data: bytes) -> None:
        self.core.receive(b"".join(data))

    def sent(self, budget: int = 2**30) -> list[Frame]:
        """What the client has to say by now."""
        said = b""
        while parts := self.core.take_output(budget):
            said += b"".join(parts)
        return split(said)

    def open(self, body: bytes = b"request", *, started: bool = True) -> Http2Stream:
        """A request, by default one whose answer has begun."""
        stream = Http2Stream(message(body), 10.0)
        self.core.open(stream)
        if started:
            self.sent()
            self.gets(self.headers(stream))
        return stream

    def headers(self, stream: Http2Stream) -> bytes:
        block = self.encoder.encode([(":status", "200"), ("content-type", "application/grpc")])
        return frame(HEADERS, END_HEADERS, stream.id, block)

    def trailers(self, stream: Http2Stream, status: str = "0") -> bytes:
        return frame(HEADERS, END_HEADERS | END_STREAM, stream.id, self.encoder.encode([("grpc-status", status)]))

    def data(self, stream: Http2Stream, content: bytes) -> bytes:
        """DATA frames of a content of any length."""
        parts = [content[n : n + 16_384] for n in range(0, len(content), 16_384)]
        return b"".join(frame(DATA, 0, stream.id, part) for part in parts)

    def read(self, stream: Http2Stream) -> bytes:
        message = stream.messages[0]
        self.core.inbound.drop(stream, 1)
        return message

    def read_all(self, stream: Http2Stream) -> list[bytes]:
        return [self.read(stream) for _ in range(len(stream.messages))]
