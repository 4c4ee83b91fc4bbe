"""Unique ids."""

from __future__ import annotations

import random


def new_id() -> str:
    """Make 128 random bits as 32 hexadecimal digits: unique, but predictable from many others."""
    return f"{random.getrandbits(128):032x}"
