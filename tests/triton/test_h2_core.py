"""The core of h2, frame by frame: what it sends, what it gives credit for, what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import hpack
import pytest
from h2_peer import Frame, Wire, setting, split, u32
from hypothesis import given
from hypothesis import strategies as st
from raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    RST,
    SETTINGS,
    WINDOW,
    frame,
    message,
)

from gateway.triton.h2.headers import HeaderBlocks
from gateway.triton.h2.http2_streams import Http2Stream
from gateway.triton.h2.limits import Limits
from gateway.triton.h2.status import decode_message, encode_timeout

CALM, FLOW, COMPRESSION, CANCEL = 11, 3, 9, 8
WINDOW_BYTES = 65_535


def credit(frames: list[Frame], stream: int) -> int:
    return sum(each.number for each in frames if each.kind == WINDOW and each.stream == stream)


def said_goodbye(wire: Wire) -> int:
    """The code of the GOAWAY with which the client ended the connection."""
    assert wire.core.failure is not None
    return next(int.from_bytes(each.payload[4:8], "big") for each in wire.sent() if each.kind == GOAWAY)


def asked() -> tuple[Wire, Http2Stream]:
    """A connection with a request that was sent."""
    wire = Wire()
    stream = wire.open(started=False)
    wire.sent()
    return wire, stream


def test_the_greeting_switches_pushes_off_and_says_what_is_taken() -> None:
    wire = Wire(greet=False)
    settings, window = wire.greeting
    assert settings.kind == SETTINGS
    assert (2).to_bytes(2, "big") + u32(0) in settings.payload
    assert window.number == 2**18 - WINDOW_BYTES


def test_a_request_is_one_head_and_one_body() -> None:
    wire = Wire()
    first, second = wire.open(b"abc", started=False), wire.open(b"", started=False)
    decoder = hpack.Decoder()
    heads = {each.stream: dict(decoder.decode(each.payload)) for each in wire.sent() if each.kind == HEADERS}
    assert heads[first.id] == heads[second.id]
    assert heads[first.id][":path"] == "/inference.GRPCInferenceService/ModelStreamInfer"
    assert heads[first.id][":authority"] == "triton:8001"
    assert heads[first.id]["te"] == "trailers"
    assert heads[first.id]["grpc-timeout"] == "10000000u"


@pytest.mark.parametrize("sizes", [[4096], [0], [100], [0, 4096], [60, 300, 0, 4096], [2**32 - 1]])
def test_request_headers_fit_every_table(sizes: list[int]) -> None:
    wire = Wire()
    decoder = hpack.Decoder()
    for round_ in range(12):
        if round_ % 3 == 2 and sizes:
            size = sizes.pop(0)
            wire.gets(setting(1, size))
            decoder.max_allowed_table_size = min(size, 4096)
        wire.open(started=False)
        (head,) = [each for each in wire.sent() if each.kind == HEADERS]
        assert dict(decoder.decode(head.payload))[":scheme"] == "http"


def test_bodies_take_turns() -> None:
    wire = Wire()
    wire.gets(frame(WINDOW, 0, 0, u32(2**20)))
    streams = [wire.open(bytes(50_000), started=False) for _ in range(3)]
    order = [each.stream for each in wire.sent() if each.kind == DATA]
    assert order == [stream.id for stream in streams] * 4


def test_a_window_that_shrinks_below_nothing_opens_again() -> None:
    wire = Wire()
    stream = wire.open(bytes(100_000), started=False)
    wire.sent()
    wire.gets(setting(4, 10))
    assert stream.send_window < 0
    wire.gets(frame(WINDOW, 0, 0, u32(2**20)), setting(4, 200_000))
    assert sum(len(each.payload) for each in wire.sent() if each.kind == DATA) == 100_005 - WINDOW_BYTES


def test_what_is_not_read_gets_no_credit() -> None:
    wire = Wire()
    stream = wire.open()
    for _ in range(16):
        wire.gets(wire.data(stream, message(bytes(4_000))))
    assert wire.sent() == []
    assert len(wire.read_all(stream)) == 16
    assert credit(wire.sent(), stream.id) >= WINDOW_BYTES // 2


def test_more_than_the_credit_ends_the_stream() -> None:
    wire = Wire()
    stream, other = wire.open(), wire.open()
    for _ in range(17):
        wire.gets(wire.data(stream, message(bytes(4_000))))
    assert stream.status.name == "INTERNAL"
    assert [(each.kind, each.number) for each in wire.sent()] == [(RST, FLOW)]
    assert len(wire.read_all(stream)) == 16
    wire.gets(wire.data(other, message(b"fine")), wire.trailers(other))
    assert other.status.name == "OK"


def test_the_connection_gets_its_credit_at_once_until_too_much_waits() -> None:
    wire = Wire(Limits(connection_window=100_000, held=80_000))
    streams = [wire.open() for _ in range(3)]
    given = 0
    for stream in streams:
        for _ in range(10):
            wire.gets(wire.data(stream, message(bytes(4_000))))
            given += credit(wire.sent(), 0)
    assert wire.core.failure is None
    assert 50_000 <= given < 60_000  # 120,000 came
    for stream in streams:
        wire.read_all(stream)
    given += credit(wire.sent(), 0)
    assert given > 110_000


def test_more_than_the_connections_credit_ends_it() -> None:
    wire = Wire(Limits(connection_window=65_535, held=0))
    streams = [wire.open() for _ in range(3)]
    for stream in streams:
        wire.gets(*(wire.data(stream, message(bytes(8_000))) for _ in range(3)))
    assert said_goodbye(wire) == FLOW


def test_a_large_message_gets_credit_of_its_own_and_the_next_one_waits_for_it() -> None:
    wire = Wire(Limits(message=100_000))
    first, second = wire.open(), wire.open()
    large = message(bytes(90_000))
    wire.gets(wire.data(first, large[:10]), wire.data(second, large[:10]))
    sent = wire.sent()
    assert (credit(sent, first.id), credit(sent, second.id)) == (90_005, 0)
    wire.gets(wire.data(first, large[10:]))
    assert credit(wire.sent(), second.id) == 0
    assert wire.read_all(first) == [bytes(90_000)]
    assert credit(wire.sent(), second.id) == 90_005


@pytest.mark.parametrize("how", ["cancelled", "ended"])
def test_a_large_message_that_will_not_come_makes_room(how: str) -> None:
    wire = Wire(Limits(message=100_000))
    first, second, third = wire.open(), wire.open(), wire.open()
    large = message(bytes(90_000))
    for stream in (first, second, third):
        wire.gets(wire.data(stream, large[:10]))
    wire.sent()
    for gone in (second, first):
        if how == "cancelled":
            wire.core.cancel(gone, ("CANCELLED", ""))  # type: ignore[arg-type]
        else:
            wire.gets(wire.trailers(gone))
    assert credit(wire.sent(), third.id) == 90_005


def test_cancelling_resets_the_stream_and_forgets_what_came() -> None:
    wire = Wire()
    stream = wire.open()
    wire.gets(wire.data(stream, message(bytes(1_000)) * 30))
    wire.core.cancel(stream, ("CANCELLED", ""))  # type: ignore[arg-type]
    assert [(each.kind, each.stream, each.number) for each in wire.sent()] == [(RST, stream.id, CANCEL)]
    assert wire.core.inbound.held == 0
    assert not stream.messages
    wire.gets(wire.data(stream, message(bytes(1_000))), wire.trailers(stream))  # on their way already
    assert wire.core.failure is None
    assert wire.sent() == []


def test_an_early_end_stops_the_body() -> None:
    wire = Wire()
    stream = wire.open(bytes(200_000), started=False)
    wire.sent()
    wire.gets(wire.trailers(stream, "8"))
    wire.gets(frame(WINDOW, 0, 0, u32(2**20)))
    assert [each.kind for each in wire.sent()] == [RST]


def test_credit_comes_back_for_padding() -> None:
    wire = Wire()
    stream = wire.open()
    given = 0
    for _ in range(1_000):
        wire.gets(frame(DATA, 8, stream.id, b"\xfe" + bytes(254)))
        given += credit(wire.sent(), stream.id)
    assert wire.core.failure is None
    assert given > 200_000


@pytest.mark.parametrize("size", [0, 1_000, 16_384])
def test_continuations_without_an_end(size: int) -> None:
    wire, stream = asked()
    wire.gets(frame(HEADERS, 0, stream.id, b""), *(frame(CONTINUATION, 0, stream.id, bytes(size)) for _ in range(60)))
    assert said_goodbye(wire) == CALM
    assert stream.status.name == "UNAVAILABLE"


def test_a_small_block_with_large_headers() -> None:
    wire, stream = asked()
    encoder = hpack.Encoder()
    block = encoder.encode([("x", "a" * 3_900)]) + b"\xbe" * 1_000
    wire.gets(frame(HEADERS, END_HEADERS, stream.id, block))
    assert said_goodbye(wire) == COMPRESSION


@pytest.mark.parametrize("flood", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 0, 0), setting(4, 1), setting(1, 7)])
def test_demands_that_are_not_picked_up(flood: bytes) -> None:
    wire = Wire()
    stream = wire.open()
    wire.gets(flood * 2_000)
    assert wire.core.failure is not None
    assert stream.status is not None
    assert len(wire.core.out) < 1_100
    assert said_goodbye(wire) == CALM


FLOODS: dict[str, Callable[[int, int], bytes]] = {
    "ping": lambda _, __: frame(PING, 0, 0, bytes(8)),
    "settings": lambda _, __: frame(SETTINGS, 0, 0),
    "empty data": lambda stream, _: frame(DATA, 0, stream),
    "unknown": lambda _, __: frame(0x99, 0, 0),
    "priority": lambda stream, _: frame(2, 0, stream, bytes(5)),
    "window": lambda stream, _: frame(WINDOW, 0, stream, u32(1)),
    "acknowledged ping": lambda _, __: frame(PING, 1, 0, bytes(8)),
    "reset of the past": lambda _, past: frame(RST, 0, past, u32(8)),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_frames_that_bring_nothing_further(kind: str) -> None:
    wire = Wire()
    past, stream = wire.open(), wire.open()
    wire.gets(wire.trailers(past))
    for _ in range(101):
        wire.gets(FLOODS[kind](stream.id, past.id) * 100)
        if wire.core.failure is None:
            wire.sent()
    assert said_goodbye(wire) == CALM


def test_pings_between_messages_are_fine() -> None:
    wire = Wire()
    stream = wire.open()
    for _ in range(300):
        wire.gets(frame(PING, 0, 0, bytes(8)) * 100, wire.data(stream, message(b"x")))
        assert len(wire.sent()) >= 100
        wire.read_all(stream)
    assert wire.core.failure is None


def test_requests_without_an_id_left_go_elsewhere() -> None:
    wire = Wire()
    wire.core.streams.last_id = 2**31 - 3
    last, beyond = wire.open(started=False), wire.open(started=False)
    assert last.id == 2**31 - 1
    assert beyond.unprocessed
    assert wire.core.streams.closing


def test_a_loss_ends_everything_and_tells_what_was_never_sent() -> None:
    wire = Wire()
    wire.gets(setting(3, 1))
    running, waiting = wire.open(), wire.open(started=False)
    wire.core.lost("gone")
    assert [(each.status.name if each.status else None, each.unprocessed) for each in (running, waiting)] == [
        ("UNAVAILABLE", False),
        ("UNAVAILABLE", True),
    ]
    wire = Wire()
    begun = wire.open()
    wire.gets(wire.data(begun, message(b"x")), frame(GOAWAY, 0, 0, u32(0, 0)))
    assert (begun.status is not None, begun.unprocessed) == (True, False), "an answer begun is not sent again"


@given(st.floats(min_value=-10, max_value=1e15))
def test_a_timeout_is_eight_digits_and_never_longer(seconds: float) -> None:
    text = encode_timeout(seconds)
    unit = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0}[text[-1]]
    assert 0 < len(text) <= 9
    value = int(text[:-1]) * unit
    assert value <= max(seconds, 1e-9) * (1 + 1e-9)
    if 1e-3 < seconds < 3e11:
        assert value >= seconds * 0.98


@given(st.text())
def test_messages_are_decoded_as_they_were_encoded(text: str) -> None:
    encoded = "".join(
        chr(octet) if 0x20 <= octet <= 0x7E and octet != 0x25 else f"%{octet:02X}"
        for octet in text.encode("utf-8", "surrogatepass")
    )
    assert decode_message(encoded) == text.encode("utf-8", "surrogatepass").decode(errors="replace")
    assert decode_message("100% %zz %4") == "100% %zz %4"  # what is wrongly encoded stays readable


def test_nothing_more_is_said_after_a_failure() -> None:
    wire = Wire()
    wire.open(bytes(100_000))
    wire.gets(frame(DATA, 0, 0, b"x"))
    assert [each.kind for each in wire.sent()] == [GOAWAY]
    wire.gets(frame(PING, 0, 0, bytes(8)))
    late = Http2Stream(message(b"x"), 1.0)
    wire.core.open(late)
    assert late.unprocessed
    assert split(b"".join(wire.core.take_output(1))) == []


# Header blocks: what is known of one holds for as long as the table of headers stays as it is.
NAMES = st.sampled_from(["grpc-status", "grpc-message", "content-type", "x-a"])
FIELDS = st.lists(st.tuples(NAMES, st.sampled_from(["0", "8", "application/grpc", "gone"])), max_size=4)


def read_block(blocks: HeaderBlocks, block: bytes) -> dict[str, str] | None:
    return blocks.begin(1, block, END_HEADERS)


def test_the_same_octets_mean_another_header_once_the_table_has_changed() -> None:
    blocks = HeaderBlocks(Limits())
    assert read_block(blocks, b"\x40\x01a\x011") == {"a": "1"}  # enters the table, as its newest entry
    assert read_block(blocks, b"\xbe") == {"a": "1"}
    assert read_block(blocks, b"\xbe") == {"a": "1"}
    assert read_block(blocks, b"\x40\x01b\x012") == {"b": "2"}
    assert read_block(blocks, b"\xbe") == {"b": "2"}
    assert read_block(blocks, b"\xbf") == {"a": "1"}


@given(st.lists(st.tuples(FIELDS, st.sampled_from([None, 0, 64, 4096])), max_size=12))
def test_every_block_means_what_its_sender_said(sent: list[tuple[list[tuple[str, str]], int | None]]) -> None:
    encoder, blocks = hpack.Encoder(), HeaderBlocks(Limits())
    for fields, size in sent:
        if size is not None:
            encoder.header_table_size = size
        first: dict[str, str] = {}
        for name, value in fields:
            first.setdefault(name, value)
        assert read_block(blocks, encoder.encode(fields)) == first
