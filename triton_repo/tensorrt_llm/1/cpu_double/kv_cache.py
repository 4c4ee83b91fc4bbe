"""The KV cache of a sequence, and its blocks, kept for sequences that begin with the same tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cpu_double.llama_config import LlamaConfig

Floats = NDArray[np.float32]
BLOCK = 32  # tokens per block, TensorRT-LLM's own default; `tokens_per_block` in config.pbtxt


class Block(NamedTuple):
    """Keys and values of ``BLOCK`` tokens, [layers, kv_heads, BLOCK, head_dim] each."""

    keys: Floats
    values: Floats


class KVCache:
    """Keys and values of one sequence, [layers, kv_heads, capacity, head_dim], growing in whole blocks."""

    def __init__(self, config: LlamaConfig) -> None:
        self._shape = (config.layers, config.kv_heads, 0, config.head_dim)
        self.keys: Floats = np.empty(self._shape, np.float32)
        self.values: Floats = np.empty(self._shape, np.float32)
        self.length = 0

    @property
    def blocks(self) -> int:
        """Blocks that hold tokens."""
        return -(-self.length // BLOCK)

    def reserve(self, length: int) -> None:
        """Make room for ``length`` tokens; doubles, so that copying stays linear."""
        capacity = self.keys.shape[2]
        if length <= capacity:
            return
        capacity = -(-max(length, 2 * capacity) // BLOCK) * BLOCK
        shape = (*self._shape[:2], capacity, self._shape[3])
        for name in ("keys", "values"):
            grown = np.empty(shape, np.float32)
            grown[:, :, : self.length] = getattr(self, name)[:, :, : self.length]
            setattr(self, name, grown)

    def load(self, blocks: Sequence[Block]) -> None:
        """Begin with copies of ``blocks``; the cache is empty before."""
        self.reserve(len(blocks) * BLOCK)
        for block in blocks:
            place = slice(self.length, self.length + BLOCK)
            self.keys[:, :, place], self.values[:, :, place] = block
            self.length += BLOCK

    def copy(self, index: int) -> Block:
        """A copy of the block ``index``, which is full."""
        place = slice(index * BLOCK, (index + 1) * BLOCK)
        return Block(self.keys[:, :, place].copy(), self.values[:, :, place].copy())


class BlockPool:
    """Full blocks by all the tokens up to their end, so that a block is found only behind its own prefix.

    What else its keys and values depend on (an adapter, a prompt table) is a ``salt``.

    The least recently used block goes first. A block is always used with its prefix, which counts as used after it: no
    block outlives its prefix, without which it could never be found.
    """

    def __init__(self, capacity: int) -> None:
        """Make an empty pool.

        Args:
            capacity: blocks kept at most; 0 keeps none.
        """
        self._capacity = capacity
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()

    def __len__(self) -> int:
        """Blocks kept."""
        return len(self._blocks)

    def match(self, prompt: Sequence[int], salt: bytes = b"") -> list[Block]:
        """Blocks of the longest known prefix; at least the last token stays to be computed, for its logits."""
        found = []
        keys = _keys(prompt, (len(prompt) - 1) // BLOCK, salt) if self._blocks else []
        for key in keys:
            if key not in self._blocks:
                break
            found.append(self._blocks[key])
        for key in reversed(keys[: len(found)]):
            self._blocks.move_to_end(key)
        return found

    def store(self, tokens: Sequence[int], cache: KVCache, salt: bytes = b"") -> None:
        """Keep the full blocks of a sequence that has ended; ``cache`` holds those of a prefix of ``tokens``."""
        keys = _keys(tokens, min(cache.length // BLOCK, self._capacity), salt)
        for index in range(len(keys) - 1, -1, -1):
            if keys[index] not in self._blocks:
                self._blocks[keys[index]] = cache.copy(index)
            self._blocks.move_to_end(keys[index])
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)


def _keys(tokens: Sequence[int], count: int, salt: bytes) -> list[bytes]:
    """Keys of the first ``count`` blocks."""
    data = np.asarray(tokens[: count * BLOCK], np.int32)
    return [salt + data[: end * BLOCK].tobytes() for end in range(1, count + 1)]
