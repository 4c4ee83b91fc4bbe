"""Unique ids."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Final

new_id: Final[Callable[[], str]] = map("{:032x}".format, map(random.getrandbits, itertools.repeat(128))).__next__
"""128 random bits as 32 hexadecimal digits: unique, but no secret, as many of them tell the next ones."""
