"""Unique ids."""

from __future__ import annotations

import random


def new_id() -> str:
    """128 random bits as 32 hexadecimal digits: unique, but no secret, as many of them tell the next ones."""
    return f"{random.getrandbits(128):032x}"
