"""The core of h2 against servers that do anything at all, and against one that does all that the protocol permits."""

from __future__ import annotations

import random
from typing import Any

from h2_peer import Frame, Wire, setting, u32
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_http2 import CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST, WINDOW, frame, message

from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.h2.limits import Limits
from gateway.triton.h2.status import NAMES, Status
from tests.rings import examples

LIMITS = Limits(
    window=4_096, connection_window=70_000, held=20_000, message=30_000, header_list=2_000, idle_frames=500,
    unsent_answers=50,
)  # fmt: skip
STREAM_IDS = st.sampled_from([0, 1, 3, 5, 2, 7, 99, 2**31 - 1])
SMALL = st.integers(0, 40)


RESPONSE = b"\x88\x0f\x10\x10application/grpc"  # the block of response headers, nothing indexed
STATUS = b"\x00\x0bgrpc-status\x01"


@st.composite
def contents(draw: Any) -> bytes:
    """gRPC messages, perhaps without the end of the last one."""
    sizes = draw(st.lists(st.one_of(SMALL, st.integers(0, 3_000)), max_size=6))
    content = b"".join(message(bytes(size)) for size in sizes)[:16_000]
    return content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content


def on_stream(kind: int, flags: int, payloads: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(frame, st.just(kind), st.just(flags), st.sampled_from([1, 3, 5]), payloads)


def padded(content: bytes, padding: int) -> bytes:
    return bytes([padding]) + content + bytes(padding)


def in_two(stream: int, cut: int) -> bytes:
    return frame(HEADERS, 0, stream, RESPONSE[:cut]) + frame(CONTINUATION, END_HEADERS, stream, RESPONSE[cut:])


# Frames that make sense now and then.
LIKELY = st.one_of(
    on_stream(DATA, 0, contents()),
    on_stream(DATA, 0, contents()),
    on_stream(DATA, 8, st.builds(padded, contents(), SMALL)),
    on_stream(DATA, END_STREAM, contents()),
    on_stream(HEADERS, END_HEADERS, st.just(RESPONSE)),
    on_stream(HEADERS, END_HEADERS | END_STREAM, st.sampled_from([STATUS + b"0", STATUS + b"3", STATUS + b"x"])),
    st.builds(in_two, st.sampled_from([1, 3, 5]), st.integers(0, len(RESPONSE))),
    on_stream(RST, 0, st.integers(0, 20).map(u32)),
    st.builds(frame, st.just(WINDOW), st.just(0), STREAM_IDS, st.sampled_from([0, 1, 5_000, 2**31 - 1]).map(u32)),
    st.builds(frame, st.just(PING), st.integers(0, 1), st.just(0), st.just(bytes(8))),
    st.builds(setting, st.integers(0, 9), st.sampled_from([0, 1, 100, 16_384, 2**31 - 1, 2**32 - 1])),
    st.builds(
        frame, st.just(GOAWAY), st.just(0), st.just(0), st.builds(u32, st.sampled_from([0, 1, 3, 2**31 - 1]), SMALL)
    ),
    st.builds(frame, st.integers(0, 12), st.integers(0, 255), STREAM_IDS, st.binary(max_size=40)),
)
TRAFFIC = st.lists(st.one_of(LIKELY, LIKELY, LIKELY, st.binary(max_size=30)), max_size=40).map(b"".join)


def opened() -> tuple[Wire, list[Http2Stream]]:
    wire = Wire(LIMITS)
    return wire, [wire.open(bytes(size), started=False) for size in (0, 10, 90_000)]


def outcome(wire: Wire, streams: list[Http2Stream]) -> Any:
    """What can be seen of a connection; credit for it comes when bytes come, so it may differ."""
    frames = [each for each in wire.sent() if (each.kind, each.stream) != (WINDOW, 0)]
    order = sorted(frames, key=lambda each: (each.stream, each.kind))
    return (
        wire.core.failure,
        [(list(stream.messages), stream.status, stream.unprocessed, stream.partial) for stream in streams],
        order,
    )


@given(TRAFFIC, st.data())
@settings(max_examples=examples(1_000, short=20))
def test_any_chunking_has_the_same_outcome(traffic: bytes, data: Any) -> None:
    wire, streams = opened()
    wire.gets(traffic)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(traffic)), max_size=60)))
    other, others = opened()
    for start, end in zip([0, *cuts], [*cuts, len(traffic)], strict=True):
        other.gets(traffic[start:end])
    assert outcome(other, others) == outcome(wire, streams)


@given(TRAFFIC)
@settings(max_examples=examples(25))
def test_byte_by_byte_has_the_same_outcome(traffic: bytes) -> None:
    wire, streams = opened()
    wire.gets(traffic)
    other, others = opened()
    for octet in traffic:
        other.gets(bytes([octet]))
    assert outcome(other, others) == outcome(wire, streams)


@given(st.lists(TRAFFIC, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=examples(500, short=14))
def test_a_server_that_does_anything(traffic: list[bytes], chance: random.Random) -> None:
    wire, streams = opened()
    for data in traffic:
        wire.gets(data)
        for stream in streams:
            queued = sum(len(each) + 5 for each in stream.messages)
            assert queued + stream.partial <= LIMITS.window + 2 * LIMITS.message + stream.drained
            assert stream.status is None or stream.status.name in NAMES
            action = chance.random()
            if action < 0.5:
                wire.read_all(stream)
            elif action < 0.6:
                wire.core.cancel(stream, Status("CANCELLED"))
        assert wire.core.inbound.held == sum(
            len(each) + 5
            for stream in streams
            for each in stream.messages
            if stream.status is None and len(each) + 5 <= LIMITS.small
        )
        assert len(wire.core.out) < 2_000
        if wire.core.failure is not None:
            assert all(stream.status is not None for stream in streams)
        wire.core.take_output(10_000)


class Server:
    """Keeps to the protocol: sends within the client's credit, in frames of any size, and counts what it is sent."""

    def __init__(self, wire: Wire, chance: random.Random, window: int, limits: Limits) -> None:
        self.wire = wire
        self.chance = chance
        self.out: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.credit = {0: limits.connection_window}
        self.stream_credit = limits.window
        self.open_for = {0: 65_535}
        self.window = window
        self.bodies: dict[int, bytes] = {}
        self.asked: set[int] = set()

    def hears(self) -> bool:
        """Take what the client says; whether there was something."""
        frames = self.wire.sent()
        for each in frames:
            self._hear(each)
        return bool(frames)

    def _hear(self, each: Frame) -> None:
        if each.kind == HEADERS:
            self.credit[each.stream] = self.stream_credit
            self.open_for[each.stream] = self.window
            self.bodies[each.stream] = b""
        elif each.kind == WINDOW:
            self.credit[each.stream] += each.number
        elif each.kind == DATA:
            for key in (0, each.stream):
                self.open_for[key] -= len(each.payload)
                assert self.open_for[key] >= 0, "more than the server's window"
            self.bodies[each.stream] += each.payload
            if each.flags & END_STREAM:
                self.asked.add(each.stream)
            more = self.chance.randint(0, 2) * len(each.payload)
            if more:
                self.open_for[each.stream] += more
                self.wire.gets(frame(WINDOW, 0, each.stream, u32(more)))
        else:
            raise AssertionError(f"an unexpected frame: {each}")

    def widen(self) -> None:
        """Give the client room again where it has none."""
        for key, window in self.open_for.items():
            if window < 1_000:
                self.open_for[key] += 3_000
                self.wire.gets(frame(WINDOW, 0, key, u32(3_000)))

    def speaks(self) -> bool:
        """Send a frame on each stream that has something to say and credit; whether there was one."""
        spoke = False
        for key, content in list(self.out.items()):
            length = min(len(content), self.credit[key], self.credit[0], self.chance.choice([1, 7, 500, 16_384]))
            if length > 0:
                self.credit[key] -= length
                self.credit[0] -= length
                self.out[key] = content[length:]
                self.wire.gets(frame(DATA, 0, key, content[:length]))
                spoke = True
            if not self.out[key] and key in self.asked and key not in self.ended:
                self.ended.add(key)
                self.wire.gets(frame(HEADERS, 5, key, self.wire.encoder.encode([("grpc-status", "0")])))
                spoke = True
        return spoke


@given(
    st.lists(
        st.lists(st.one_of(SMALL, st.integers(0, 2_500), st.integers(0, 30_000)), max_size=12), min_size=1, max_size=5
    ),
    st.sampled_from([65_535, 1, 3_000]),
    st.sampled_from([10, 4_096, 65_535]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(750, short=20))
def test_everything_arrives_from_a_server_that_keeps_to_its_credit(
    sizes: list[list[int]], window: int, own_window: int, chance: random.Random
) -> None:
    """Answers of given message sizes, read now and then, over a connection with given windows."""
    limits = Limits(window=own_window, connection_window=65_535, held=10_000, message=30_000)
    wire = Wire(limits)
    wire.gets(setting(4, window))
    wire.sent()
    server = Server(wire, chance, window, limits)
    streams = [wire.open(bytes(chance.choice([0, 100, 20_000])), started=False) for _ in sizes]
    server.hears()
    for stream, each in zip(streams, sizes, strict=True):
        wire.gets(wire.headers(stream))
        server.out[stream.id] = b"".join(message(bytes([n % 256]) * size) for n, size in enumerate(each))
    got: dict[int, list[bytes]] = {stream.id: [] for stream in streams}
    still = 0
    while still < 3:  # nobody moves any more
        spoke = server.speaks()
        for stream in streams:
            if (still or chance.random() < 0.3) and stream.messages:
                got[stream.id].append(wire.read(stream))
                spoke = True
        spoke = server.hears() or spoke
        server.widen()
        still = 0 if spoke else still + 1
    assert wire.core.failure is None
    assert [got[stream.id] for stream in streams] == [
        [bytes([n % 256]) * size for n, size in enumerate(each)] for each in sizes
    ]
    assert all(stream.status == Status("OK") for stream in streams)
    assert all(server.bodies[stream.id][5:] == bytes(len(server.bodies[stream.id]) - 5) for stream in streams)
    assert wire.core.inbound.held == 0
