"""Seeds: OpenAI's are any int64, the engine's are uint64."""

from __future__ import annotations

import random


def engine_seed(seed: int | None) -> int:
    """Map a user's seed to the engine's unsigned 64 bits.

    Args:
        seed: any integer from -2**63 to 2**64 - 1; negative ones map by two's complement, so that different seeds stay
            different. None draws a random one below 2**63.

    Raises:
        ValueError: outside that range.
    """
    if seed is None:
        return random.getrandbits(63)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"The seed {seed} does not fit in 64 bits.")
    return seed % 2**64
