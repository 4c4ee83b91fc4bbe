"""The script that an engine of the LLM API plays, and the journal that it keeps.

A turn has what `tests.scripted_engine.turns` says, and

- ``sampled``: in place of a text, an answer by chance: true, or ``{"pieces": [...], "end": 0.1}``. Pieces are drawn and
  encoded one by one; after each, the end of text follows with the given chance, else the limit ends the answer. The
  same prompt and the same heeded parameters draw the same where a request is greedy or has a seed that is heeded;
- ``finish``: why it ends when all is said, ``stop`` by default; the end of text or the limit may end it earlier;
- ``hold``: true keeps the answer open after its last token, until it is aborted or the script is replaced;
- ``stall_after``: tokens after which it is kept open so;
- ``fail_after``: tokens after which it fails, with the text ``error``.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer

from tests.doubles.llmapi.sampling import Sampling
from tests.scripted_engine.turns import Script

_ECHOED = 2  # tokens that a probe asks for at most
_PIECES = ("a", " the", " then", "\n", " 世界", "😀", " مرحبا", "  ", " one", ".")
_WITHOUT_EFFECT_ON_A_DRAW = ("max_tokens", "exclude_input_from_output", "return_perf_metrics")


@dataclass(frozen=True, slots=True)
class Turn:
    """An answer, ready to be played.

    Attributes:
        ids: tokens, with the end of text where it is reached.
        finish: why it ends after them.
        chunks: numbers of tokens in a response, gone through again and again.
        stall_after: tokens after which it stands still; None never.
        fail_after: tokens after which it fails; None never.
        error: what it fails with.
    """

    ids: list[int]
    finish: str
    chunks: list[int]
    stall_after: int | None = None
    fail_after: int | None = None
    error: str = "the engine failed"


class LlmapiScript:
    """The turns, with the ends that this engine gives their answers."""

    def __init__(self, path: Path, tokenizer: Tokenizer, end_id: int | None) -> None:
        self._script, self._tokenizer, self._end_id = Script(path, tokenizer), tokenizer, end_id
        self._content: dict[str, Any] = {}
        self._draws = itertools.count()
        self._lock = threading.Lock()

    def read(self) -> dict[str, Any]:
        """The script; another object once it was replaced."""
        with self._lock:
            content = self._script.read()
            if content is not self._content:
                self._content, self._draws = content, itertools.count()
            return content

    def find(self, prompt: list[int], sampling: Sampling, limit: int) -> Turn:
        """Find the answer to a prompt, cut to ``limit`` tokens and to its first end of text.

        Raises:
            LookupError: no turn matches, and the request is no probe.
        """
        self.read()
        with self._lock:
            turn = self._script.turn(prompt)
        if turn is None:
            if limit > _ECHOED:
                raise LookupError("no turn of the script matches the prompt")
            turn = {"ids": prompt[:_ECHOED], "chunk": [1]}
        ids = turn["ids"]
        if "sampled" in turn:
            how = {} if turn["sampled"] is True else turn["sampled"]
            ids = list(itertools.islice(self._draw(how, self._chance(prompt, sampling)), limit))
        ids, finish = self._cut(ids, limit)
        told = {name: turn[name] for name in ("stall_after", "fail_after", "error") if name in turn}
        if finish is None and turn.get("hold"):
            told["stall_after"] = len(ids)
        return Turn(ids, finish or turn.get("finish", "stop"), turn["chunk"], **told)

    def _chance(self, prompt: list[int], sampling: Sampling) -> Random:
        heeded = {name: value for name, value in sampling.effective.items() if name not in _WITHOUT_EFFECT_ON_A_DRAW}
        repeats = sampling.greedy or sampling.seed is not None
        return Random(json.dumps([prompt, heeded, None if repeats else next(self._draws)], sort_keys=True))

    def _draw(self, how: dict[str, Any], chance: Random) -> Iterator[int]:
        pieces = how.get("pieces", _PIECES)
        while True:
            yield from self._tokenizer.encode(chance.choice(pieces), add_special_tokens=False).ids
            if self._end_id is not None and chance.random() < how.get("end", 0.1):
                yield self._end_id

    def _cut(self, ids: list[int], limit: int) -> tuple[list[int], str | None]:
        for place, token in enumerate(ids[:limit], 1):
            if token == self._end_id:
                return ids[:place], "stop"
        return (ids[:limit], "length") if len(ids) >= limit else (ids, None)


class Journal:
    """A file with lines of JSON; those of one request have its ``key``, and the later ones add to the first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, key: str, **what: Any) -> None:
        """Add to what is known of a request."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **what}) + "\n")
