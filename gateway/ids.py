"""Names that nobody else has."""

from __future__ import annotations

import random


def new_id() -> str:
    """128 random bits as 32 hexadecimal digits: unique, and no secret, so it takes no system call."""
    return f"{random.getrandbits(128):032x}"
