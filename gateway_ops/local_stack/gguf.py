"""Reads GGUF model files: metadata, and tensors of types F32, F16, Q4_1 and Q8_0 as float32.

Source: the GGUF specification of the ggml project (versions 2 and 3, little endian).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT: Final = 32
_BLOCK: Final = 32  # weights per quantised block
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}


class GgufError(ValueError):
    """Bytes that are not a known GGUF file; the message says why."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """The place of one tensor in the file.

    Attributes:
        name: its name in the file.
        shape: dimensions, outermost first (row major), the reverse of the order in the file.
        kind: ggml's number of the element type.
        offset: bytes from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """A parsed GGUF file.

    Args:
        data: the whole file (bytes or a memory map); kept, not copied.

    Attributes:
        metadata: key to value: str, int, float, bool, or a list of one of these.
        tensors: name to position.

    Raises:
        GgufError: not a GGUF file, cut short, or of an unknown version or type.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        cursor = _Cursor(data)
        if bytes(data[:4]) != _MAGIC:
            raise GgufError("not a GGUF file: it does not start with the letters GGUF")
        cursor.position = 4
        version = cursor.scalar("I")
        if version not in _VERSIONS:
            raise GgufError(f"GGUF version {version} is not supported, only {_VERSIONS}")
        tensor_count, key_count = cursor.scalar("Q"), cursor.scalar("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.scalar("I"))
        places = [self._tensor_info(cursor) for _ in range(tensor_count)]
        alignment = int(self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
        start = -(-cursor.position // alignment) * alignment
        self.tensors = {name: GgufTensor(name, shape, kind, start + offset) for name, shape, kind, offset in places}

    @staticmethod
    def _tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
        name = cursor.string()
        dimensions = [cursor.scalar("Q") for _ in range(cursor.scalar("I"))]
        kind, offset = cursor.scalar("I"), cursor.scalar("Q")
        return name, tuple(reversed(dimensions)), kind, offset

    def tensor(self, name: str) -> FloatArray:
        """Read one tensor, dequantised.

        Returns:
            float32 of the tensor's shape, a copy of its own.

        Raises:
            GgufError: the tensor is missing, its type is unknown to this reader, or the file is cut short.
        """
        place = self.tensors.get(name)
        if place is None:
            raise GgufError(f"the GGUF file has no tensor {name!r}")
        known = _KINDS.get(place.kind)
        if known is None:
            raise GgufError(f"tensor {name!r} has ggml type {place.kind}; supported types are {sorted(_KINDS)}")
        per_block, block_bytes, read = known
        count = math.prod(place.shape)
        if count % per_block:
            raise GgufError(f"tensor {name!r} has {count} elements, not a multiple of {per_block}")
        size = count // per_block * block_bytes
        if place.offset + size > len(self._data):
            raise GgufError(f"the GGUF file is cut short inside tensor {name!r}")
        raw = np.frombuffer(self._data, np.uint8, size, place.offset)
        return read(raw).reshape(place.shape)


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self.position = 0

    def scalar(self, code: str) -> Any:
        try:
            (value,) = struct.unpack_from(f"<{code}", self._data, self.position)
        except struct.error:
            raise GgufError("the GGUF file is cut short") from None
        self.position += struct.calcsize(code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        end = self.position + length
        if end > len(self._data):
            raise GgufError("the GGUF file is cut short")
        text = bytes(self._data[self.position : end]).decode("utf-8", errors="replace")
        self.position = end
        return text

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _BOOL:
            return bool(self.scalar("B"))
        if kind == _ARRAY:
            item_kind, count = self.scalar("I"), self.scalar("Q")
            return [self.value(item_kind) for _ in range(count)]
        if kind not in _SCALARS:
            raise GgufError(f"the GGUF file has a value of unknown type {kind}")
        return self.scalar(_SCALARS[kind])


def _read_f32(raw: npt.NDArray[np.uint8]) -> FloatArray:
    return raw.view("<f4").astype(np.float32)


def _read_f16(raw: npt.NDArray[np.uint8]) -> FloatArray:
    return raw.view("<f2").astype(np.float32)


def _read_q4_1(raw: npt.NDArray[np.uint8]) -> FloatArray:
    # Block: scale and minimum (float16 each), then 16 bytes: low nibbles are weights 0-15, high nibbles 16-31.
    blocks = raw.reshape(-1, 4 + _BLOCK // 2)
    scale, minimum = np.split(blocks[:, :4].copy().view("<f2").astype(np.float32), 2, axis=1)
    nibbles = blocks[:, 4:]
    weights: FloatArray = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=1).astype(np.float32)
    weights *= scale
    weights += minimum
    return weights


def _read_q8_0(raw: npt.NDArray[np.uint8]) -> FloatArray:
    # Block: scale (float16), then 32 signed bytes.
    blocks = raw.reshape(-1, 2 + _BLOCK)
    weights: FloatArray = blocks[:, 2:].view(np.int8).astype(np.float32)
    weights *= blocks[:, :2].copy().view("<f2").astype(np.float32)
    return weights


# ggml type -> elements per block, bytes per block, reader.
_KINDS: Final[dict[int, tuple[int, int, Callable[[npt.NDArray[np.uint8]], FloatArray]]]] = {
    0: (1, 4, _read_f32),
    1: (1, 2, _read_f16),
    3: (_BLOCK, 20, _read_q4_1),
    8: (_BLOCK, 34, _read_q8_0),
}
