"""Writes GGUF files, for tests of what reads them. Layout: the GGUF specification, version 3."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
_CODES = {4: "I", 5: "i", 6: "f", 7: "?", 10: "Q"}

Tensor = tuple[str, tuple[int, ...], int, bytes]


def half(value: float) -> bytes:
    """A float16, little endian."""
    return struct.pack("<e", value)


def gguf_bytes(metadata: Sequence[tuple[str, int, Any]], tensors: Sequence[Tensor], alignment: int = 32) -> bytes:
    """A GGUF file: metadata as (key, type, value), tensors as (name, shape, ggml type, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, kind, value in metadata:
        head += _string(key) + struct.pack("<I", kind) + _value(kind, value)
    body = b""
    for name, shape, kind, raw in tensors:
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += _string(name) + dimensions + struct.pack("<IQ", kind, len(body))
        body += raw + bytes(-len(raw) % alignment)
    # The last tensor ends the file: nothing pads it.
    if tensors:
        body = body[: len(body) - (-len(tensors[-1][3]) % alignment)]
    return head + bytes(-len(head) % alignment) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return _string(value)
    if kind == ARRAY:
        item, values = value
        return struct.pack("<IQ", item, len(values)) + b"".join(_value(item, one) for one in values)
    return struct.pack(f"<{_CODES[kind]}", value) if kind in _CODES else b""
