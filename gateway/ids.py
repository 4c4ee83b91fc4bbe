"""Names that nobody else has."""

from __future__ import annotations

import random


def new_id() -> str:
    """128 random bits as 32 hexadecimal digits: unique, but no secret, for others can be told from many of them."""
    return f"{random.getrandbits(128):032x}"
