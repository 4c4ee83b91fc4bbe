"""Header blocks: what is known of a block holds for as long as the table of headers stays as it is."""

from __future__ import annotations

from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from gateway.triton.h2 import http2_frames as frames
from gateway.triton.h2.headers import HeaderBlocks
from gateway.triton.h2.limits import Limits

NAMES = st.sampled_from(["grpc-status", "grpc-message", "content-type", "x-a"])
FIELDS = st.lists(st.tuples(NAMES, st.sampled_from(["0", "8", "application/grpc", "gone"])), max_size=4)


def read(blocks: HeaderBlocks, block: bytes) -> dict[str, str] | None:
    return blocks.begin(1, block, frames.END_HEADERS)


def test_the_same_octets_mean_another_header_once_the_table_has_changed() -> None:
    blocks = HeaderBlocks(Limits())
    assert read(blocks, b"\x40\x01a\x011") == {"a": "1"}  # enters the table, as its newest entry
    assert read(blocks, b"\xbe") == {"a": "1"}
    assert read(blocks, b"\xbe") == {"a": "1"}
    assert read(blocks, b"\x40\x01b\x012") == {"b": "2"}
    assert read(blocks, b"\xbe") == {"b": "2"}
    assert read(blocks, b"\xbf") == {"a": "1"}


@given(st.lists(st.tuples(FIELDS, st.sampled_from([None, 0, 64, 4096])), max_size=12))
def test_every_block_means_what_its_sender_said(sent: list[tuple[list[tuple[str, str]], int | None]]) -> None:
    encoder, blocks = Encoder(), HeaderBlocks(Limits())
    for fields, size in sent:
        if size is not None:
            encoder.header_table_size = size
        first: dict[str, str] = {}
        for name, value in fields:
            first.setdefault(name, value)
        assert read(blocks, encoder.encode(fields)) == first
