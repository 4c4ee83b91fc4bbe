"""The GGUF reader on files made here, against arithmetic done here."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_ops.local_stack.gguf import GgufError, GgufFile
from tests.gateway_ops.local_stack.gguf_bytes import ARRAY, F32, Q4_1, Q8_0, STRING, gguf_bytes, half

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


def test_f32_keeps_values_and_row_major_shape() -> None:
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    read = GgufFile(gguf_bytes([], [("w", (2, 3), F32, weights.tobytes())])).tensor("w")
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, weights)


@given(
    st.lists(
        st.tuples(
            st.floats(-8, 8, width=16),
            st.floats(-8, 8, width=16),
            st.lists(st.integers(0, 15), min_size=32, max_size=32),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_q4_1_is_scale_times_nibble_plus_minimum(blocks: list[tuple[float, float, list[int]]]) -> None:
    raw = b""
    wanted: list[float] = []
    for scale, minimum, nibbles in blocks:
        low, high = nibbles[:16], nibbles[16:]
        raw += half(scale) + half(minimum) + bytes(a | b << 4 for a, b in zip(low, high, strict=True))
        wanted += [scale * nibble + minimum for nibble in nibbles]
    read = GgufFile(gguf_bytes([], [("w", (len(blocks), 32), Q4_1, raw)])).tensor("w")
    assert read.shape == (len(blocks), 32)
    np.testing.assert_allclose(read.ravel(), wanted, rtol=1e-6, atol=1e-6)


@given(st.floats(-8, 8, width=16), st.lists(st.integers(-128, 127), min_size=32, max_size=32))
def test_q8_0_is_scale_times_byte(scale: float, values: list[int]) -> None:
    raw = half(scale) + struct.pack("<32b", *values)
    read = GgufFile(gguf_bytes([], [("w", (32,), Q8_0, raw)])).tensor("w")
    np.testing.assert_allclose(read, [scale * value for value in values], rtol=1e-6)


def test_tensors_are_found_after_padding_and_one_another() -> None:
    first, second = np.full(3, 1.5, np.float32), np.full(5, -2.0, np.float32)
    for alignment in (32, 64):
        data = gguf_bytes(
            [("general.alignment", U32, alignment)],
            [("a", (3,), F32, first.tobytes()), ("b", (5,), F32, second.tobytes())],
            alignment,
        )
        file = GgufFile(data)
        np.testing.assert_array_equal(file.tensor("a"), first)
        np.testing.assert_array_equal(file.tensor("b"), second)


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
