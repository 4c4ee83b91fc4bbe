"""The gateway with a clock around template and tokenization.

Started as ``python -m benchmarks.harness.preparation_probe SETTINGS``.

``GET /preparation`` answers, and forgets, how many prompts were built since the last question, of how many tokens the
last one was, and the CPU milliseconds of each. Prompts of the benchmark are short, so they are built in one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from gateway.text.prompt import PromptBuilder
from gateway.text.prompt.prompt import Prompt

from .probe import serve


class Clock:
    """A clock that adds up the CPU time of one function's calls."""

    def __init__(self) -> None:
        self._seconds, self._prompts, self._tokens = 0.0, 0, 0

    def around(self, build: Callable[..., Prompt]) -> Callable[..., Prompt]:
        """Wrap the function with the clock."""

        def clocked(*args: object, **fields: object) -> Prompt:
            begun = time.thread_time()
            prompt = build(*args, **fields)
            self._seconds += time.thread_time() - begun
            self._prompts += 1
            self._tokens = len(prompt.ids)
            return prompt

        return clocked

    async def answer(self) -> dict[str, float]:
        """Return the figures once."""
        each_ms = self._seconds * 1000 / max(1, self._prompts)
        found = {"prompts": self._prompts, "tokens": self._tokens, "cpu_ms": round(each_ms, 4)}
        self._seconds, self._prompts = 0.0, 0
        return found


if __name__ == "__main__":
    clock = Clock()
    with mock.patch.object(PromptBuilder, "build", clock.around(PromptBuilder.build)):
        serve(Path(sys.argv[1]), "/preparation", clock.answer)
