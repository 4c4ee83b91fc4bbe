"""Policies that choose the endpoint of a request: by requests in flight, or by the known prefix of the prompt."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.serving.fleet.shared_counts import SharedCounts, endpoint_bit
from gateway.text.tokens.token_ids import pack

BLOCK: Final = 128
"""Tokens of a block of a prompt that is known or not."""

_BOUND: Final = 1.25  # of the mean load: an endpoint above it gets no request for the sake of its cache


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint that may take a request.

    Attributes:
        key: key of the endpoint, the same in all processes.
        load: requests in flight.
        weight: weight of the endpoint, above 0 up to 1; below 1 during its slow start.
    """

    key: int
    load: int
    weight: float = 1.0

    @property
    def cost(self) -> float:
        """The load with one request more; the smaller the better."""
        return (self.load + 1) / self.weight


class Policy(Protocol):
    """Chooses the endpoint of a request."""

    def choose(self, candidates: Sequence[Candidate], ids: Sequence[int], affinity: str | None) -> Candidate:
        """Choose one of the candidates.

        Args:
            candidates: at least one.
            ids: token ids of the prompt; empty where they are unknown.
            affinity: id of the conversation, if known.
        """
        ...


class LeastInFlight:
    """Chooses the endpoint with the fewest requests in flight, at random among equals."""

    def choose(self, candidates: Sequence[Candidate], ids: Sequence[int], affinity: str | None) -> Candidate:
        """Choose an endpoint; see ``Policy``."""
        del ids, affinity
        least = min(each.cost for each in candidates)
        return random.choice([each for each in candidates if each.cost == least])  # noqa: S311 - no secret


class PowerOfTwo:
    """Chooses the better of two random endpoints, which avoids herds where loads are known late."""

    def choose(self, candidates: Sequence[Candidate], ids: Sequence[int], affinity: str | None) -> Candidate:
        """Choose an endpoint; see ``Policy``."""
        del ids, affinity
        drawn = random.sample(candidates, min(2, len(candidates)))
        return min(drawn, key=lambda each: each.cost)


class PrefixAffinity:
    """Chooses the endpoint that knows most of the prompt, unless it has more load than others.

    Prompts are known by blocks: the hash of a block covers all before it. Of endpoints that know equally much, such as
    a system prompt that all conversations share, the conversation's own hash decides (rendezvous). An endpoint above
    1.25 times the mean load gets no request for its cache, and one that starts slowly has its part of that.

    Args:
        counts: has the table of known blocks, of all processes.
    """

    def __init__(self, counts: SharedCounts) -> None:
        self._counts = counts

    def choose(self, candidates: Sequence[Candidate], ids: Sequence[int], affinity: str | None) -> Candidate:
        """Choose an endpoint; see ``Policy``."""
        blocks = block_hashes(ids)
        name = affinity.encode() if affinity else pack(ids[:BLOCK])
        shares = sum(each.weight for each in candidates)
        most = math.ceil(_BOUND * (sum(each.load for each in candidates) + 1) / shares)
        fit = [each for each in candidates if each.load < most * each.weight] or list(candidates)
        chosen = max(fit, key=lambda each: (self._length(each.key, blocks), _rendezvous(name, each.key)))
        bit = endpoint_bit(chosen.key)
        for block in blocks:
            self._counts.learn(block, bit)
        return chosen

    def _length(self, key: int, blocks: Sequence[int]) -> int:
        """Blocks from the first on that an endpoint knows; a later one is known only with all before it."""
        low, high, bit = 0, len(blocks), endpoint_bit(key)
        while low < high:
            middle = (low + high + 1) // 2
            if self._counts.endpoints_with_prefix(blocks[middle - 1]) & bit:
                low = middle
            else:
                high = middle - 1
        return low


def block_hashes(ids: Sequence[int]) -> list[int]:
    """Hash each whole block of a prompt, over all tokens up to the block's end; 63 bits."""
    data = pack(ids)
    size = BLOCK * 4
    hashes: list[int] = []
    state = hashlib.blake2b(digest_size=8)
    for start in range(0, len(data) - size + 1, size):
        state.update(data[start : start + size])
        hashes.append(int.from_bytes(state.copy().digest(), "little") >> 1)
    return hashes


def _rendezvous(name: bytes, key: int) -> bytes:
    return hashlib.blake2b(name + key.to_bytes(8, "little"), digest_size=8).digest()
