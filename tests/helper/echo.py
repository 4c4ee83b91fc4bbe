"""What a helper does in these tests: as it is told."""

from __future__ import annotations

import os


def answer(question: bytes | bytearray) -> bytes:
    """Say it back; or burn time, take memory, talk too much, or end."""
    said = question.decode()
    if said == "burn":
        while True:
            pass
    if said == "take":
        return bytes(2**31)
    if said == "talk":
        return bytes(2**20)
    if said == "end":
        os._exit(3)
    return said.encode()
