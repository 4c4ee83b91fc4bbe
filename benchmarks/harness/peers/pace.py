"""The pace of a synthetic engine in Python: microseconds between tokens, by lines on standard input.

Workers run it in the environments of the gateways that they stand behind, so it needs the standard library alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

FIRST_ID = 1000  # ids 1000 to 1063 in turn, as the synthetic Triton answers
_IDS = 64


class Pace:
    """Time between the tokens of each answer.

    Attributes:
        delay_s: before each token, the first one too; 0 as fast as they are taken.
    """

    def __init__(self) -> None:
        self.delay_s = 0.0

    def follow_input(self) -> None:
        """Take a new pace from each line of standard input, in the running event loop."""
        asyncio.get_running_loop().add_reader(sys.stdin, self._read)

    def _read(self) -> None:
        line = sys.stdin.readline()
        if line:
            self.delay_s = float(line) / 1e6
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin)

    async def count(self, tokens: int) -> AsyncIterator[int]:
        """The numbers 0 to ``tokens`` - 1, each when its token is due."""
        clock = asyncio.get_running_loop().time
        due = clock()
        for index in range(tokens):
            if self.delay_s:
                due += self.delay_s
                await asyncio.sleep(due - clock())
            yield index


def token_id(index: int) -> int:
    """The id of a token of any answer."""
    return FIRST_ID + index % _IDS
