"""Hashes that do not let go of the interpreter for moments."""

from __future__ import annotations

import hashlib
import zlib

import pytest

from gateway.tokens import checksums

_SIZES = [0, 1, 2047, 2048, 4094, 4095, 5120, 5121, 10_240, 100_000, 262_143, 262_144, 300_000]
_LET_GO = {"update": 2048, "crc32": 5121}  # bytes from which on hashlib and zlib let other threads run
_WOKEN = 100_000  # bytes that take longer to be hashed than a thread takes to wake up


class Spy:
    """A hasher that notes the bytes of each call."""

    def __init__(self) -> None:
        self.hasher = hashlib.blake2b()
        self.sizes: list[int] = []

    def update(self, data: bytes) -> None:
        self.sizes.append(len(data))
        self.hasher.update(data)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    crc32 = zlib.crc32

    def spy(data: bytes, value: int = 0) -> int:
        sizes.append(len(data))
        return crc32(data, value)

    monkeypatch.setattr(zlib, "crc32", spy)
    return sizes


@pytest.mark.parametrize("size", _SIZES)
def test_digests_are_those_of_the_whole(size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    hasher = hashlib.blake2b()
    checksums.update(hasher, data)
    assert hasher.digest() == hashlib.blake2b(data).digest()
    assert checksums.checksum(data) == zlib.crc32(data)


@pytest.mark.parametrize("size", _SIZES)
def test_the_interpreter_is_let_go_for_long_or_not_at_all(size: int, summed: list[int]) -> None:
    data = bytes(size)
    spy = Spy()
    checksums.update(spy, data)  # type: ignore[arg-type]
    checksums.checksum(data)
    assert all(each < _LET_GO["update"] or each > _WOKEN for each in spy.sizes)
    assert all(each < _LET_GO["crc32"] or each > _WOKEN for each in summed)
