"""The script that an engine plays, and the journal that it keeps; the format is `tests.scripted_engine`'s.

A turn has, beyond ``match``, ``prompt_ids``, ``text``, ``ids``, ``finish``, ``chunk`` and ``hold``:

- ``sample``: in place of a text, an answer by chance: ``{"pieces": [...], "end": 0.1}``. Pieces are drawn and encoded
  one by one; after each, the answer ends with the given chance by the end of text, else at the limit. The same draw
  follows from the same prompt where a request is greedy, and from the same seed where the engine heeds it;
- ``hold_after``: tokens after which it stands still, until it is aborted or the script is replaced;
- ``fail_after``: tokens after which it fails, with the text ``error``.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer

from tests.doubles.llmapi.sampling import Sampling

_ECHOED = 2  # tokens that a probe asks for at most
_PIECES = ("a", " the", " then", "\n", " 世界", "😀", " مرحبا", "  ", " one", ".")


@dataclass(frozen=True, slots=True)
class Turn:
    """An answer, ready to be played.

    Attributes:
        ids: tokens, with the end of text where it is reached.
        finish: why it ends after them.
        chunks: numbers of tokens in a response, gone through again and again.
        hold_after: tokens after which it stands still; None never.
        fail_after: tokens after which it fails; None never.
        error: what it fails with.
    """

    ids: list[int]
    finish: str = "stop"
    chunks: list[int] = field(default_factory=lambda: [1])
    hold_after: int | None = None
    fail_after: int | None = None
    error: str = "the engine failed"


class Script:
    """The file, read when it was replaced."""

    def __init__(self, path: Path, tokenizer: Tokenizer, end_id: int | None) -> None:
        self._path, self._tokenizer, self._end_id = path, tokenizer, end_id
        self._content: dict[str, Any] = {}
        self._version: tuple[int, int] | None = None
        self._draws = itertools.count()
        self._lock = threading.Lock()

    def version(self) -> tuple[int, int]:
        """What changes when the script is replaced."""
        status = self._path.stat()
        return status.st_mtime_ns, status.st_ino

    def find(self, prompt: list[int], sampling: Sampling, limit: int) -> Turn:
        """Find the answer to a prompt, cut to ``limit`` tokens and to its first end of text.

        Raises:
            LookupError: no turn matches, and the request is no probe.
        """
        content = self._read()
        text = str(self._tokenizer.decode(prompt, skip_special_tokens=False))
        for turn in reversed(content.get("turns", [])):
            if turn["prompt_ids"] == prompt if "prompt_ids" in turn else re.search(turn["match"], text, re.DOTALL):
                break
        else:
            if limit > _ECHOED:
                raise LookupError("no turn of the script matches the prompt")
            turn = {"ids": prompt[:_ECHOED]}
        ids, finish = self._cut(self._ids(turn, text, sampling, limit), limit)
        chunk = turn.get("chunk", content.get("chunk", 1))
        told = {name: turn[name] for name in ("hold_after", "fail_after", "error") if name in turn}
        if finish is None and turn.get("hold"):
            told["hold_after"] = len(ids)
        chunks = chunk if isinstance(chunk, list) else [chunk]
        return Turn(ids, finish or turn.get("finish", "stop"), chunks, **told)

    def _read(self) -> dict[str, Any]:
        with self._lock:
            version = self.version()
            if version != self._version:
                self._content, self._version = json.loads(self._path.read_text(encoding="utf-8")), version
                self._draws = itertools.count()
            return self._content

    def _ids(self, turn: dict[str, Any], prompt: str, sampling: Sampling, limit: int) -> list[int]:
        if "ids" in turn:
            return list(turn["ids"])
        if "text" in turn:
            return self._encode(turn["text"])
        if sampling.greedy:
            draw = Random(prompt)
        else:
            draw = Random(f"{prompt} {next(self._draws) if sampling.seed is None else sampling.seed}")
        return list(itertools.islice(self._sample(turn["sample"], draw), limit))

    def _sample(self, sample: dict[str, Any], draw: Random) -> Iterator[int]:
        pieces = sample.get("pieces", _PIECES)
        while True:
            yield from self._encode(draw.choice(pieces))
            if self._end_id is not None and draw.random() < sample.get("end", 0.1):
                yield self._end_id

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

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
