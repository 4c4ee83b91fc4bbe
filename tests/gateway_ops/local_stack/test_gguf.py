"""The GGUF reader on files made here, against arithmetic done here."""

from __future__ import annotations

import struct

import pytest

from gateway_ops.local_stack.gguf import GgufError, GgufFile
from tests.gateway_ops.local_stack.gguf_bytes import ARRAY, F32, STRING, gguf_bytes

U32, BOOL, U64 = 4, 7, 10


def test_metadata_of_every_kind_is_read() -> None:
    file = GgufFile(
        gguf_bytes(
            [
                ("a.text", STRING, "naïve ☃"),
                ("a.count", U32, 7),
                ("a.large", U64, 2**40),
                ("a.real", 6, 0.5),
                ("a.yes", BOOL, True),
                ("a.words", ARRAY, (STRING, ["x", "", "yz"])),
                ("a.numbers", ARRAY, (5, [-1, 2])),
            ],
            [],
        )
    )
    assert file.metadata == {
        "a.text": "naïve ☃", "a.count": 7, "a.large": 2**40, "a.real": 0.5, "a.yes": True, "a.words": ["x", "", "yz"],
        "a.numbers": [-1, 2],
    }  # fmt: skip


def test_other_files_are_refused_by_name() -> None:
    with pytest.raises(GgufError, match="not a GGUF file"):
        GgufFile(b"PK\x03\x04 something else")
    with pytest.raises(GgufError, match="version 9"):
        GgufFile(b"GGUF" + struct.pack("<I", 9) + bytes(16))
    with pytest.raises(GgufError, match="unknown type 99"):
        GgufFile(gguf_bytes([("a", 99, None)], []))


def test_a_tensor_that_cannot_be_read_is_named() -> None:
    file = GgufFile(gguf_bytes([], [("strange", (32,), 14, bytes(64))]))
    with pytest.raises(GgufError, match=r"'strange' has ggml type 14"):
        file.tensor("strange")
    with pytest.raises(GgufError, match="no tensor 'absent'"):
        file.tensor("absent")


@pytest.mark.parametrize("kept", [5, 20, 40, 90])
def test_a_file_cut_short_says_so(kept: int) -> None:
    data = gguf_bytes([("a.text", STRING, "x" * 20)], [("w", (8,), F32, bytes(32))])
    with pytest.raises(GgufError, match="cut short"):
        GgufFile(data[:kept]).tensor("w")


def test_weights_cut_short_say_so() -> None:
    data = gguf_bytes([], [("w", (8,), F32, bytes(32))])
    with pytest.raises(GgufError, match="cut short inside tensor 'w'"):
        GgufFile(data[:-1]).tensor("w")
