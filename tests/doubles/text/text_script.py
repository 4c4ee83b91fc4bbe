"""The script that the doubles here play: what a model says to a prompt, until an end token or the limit.

A turn has what `tests.scripted_engine.turns` says, and ``sampled``, ``hold``, ``stall_after``, ``fail_after`` with
``error``, as those of `tests.doubles.llmapi.script`; ``pause``, seconds before each response; and ``spoil``, outputs to
leave out or to replace: ``{"logprobs": null, "finish_reason": "abort"}``.

A model draws its end token after the turn's text, and says the same again where that does not end the answer.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer

from tests.scripted_engine.turns import Script

_PIECES = ("a", " the", " then", "\n", " 世界", "😀", " مرحبا", "  ", " one", ".")
_END = 0.1  # the chance of an end after each of them
_ECHOED = 2  # tokens that a probe asks for at most


@dataclass(frozen=True)
class Asked:
    """What decides about an answer.

    Attributes:
        prompt: its ids.
        limit: tokens at most.
        ends: ids that end it.
        repeats: what makes a sampled answer the same again; None where nothing does.
    """

    prompt: list[int]
    limit: int
    ends: frozenset[int]
    repeats: str | None = None


@dataclass(frozen=True)
class Played:
    """An answer, ready to be played.

    Attributes:
        ids: tokens, with the one that ended it.
        finish: ``stop`` or ``length``.
        turn: what the script says of it.
        chunks: numbers of tokens in a response, gone through again and again.
    """

    ids: list[int]
    finish: str
    turn: dict[str, Any] = field(default_factory=dict)
    chunks: list[int] = field(default_factory=lambda: [1])

    def sizes(self) -> Iterator[int]:
        """The tokens that each response adds, up to where it stands still or fails."""
        marks = sorted(self.turn[name] for name in ("stall_after", "fail_after") if name in self.turn)
        made = 0
        for size in itertools.cycle(self.chunks):
            if made in marks:
                return
            end = min([made + size, len(self.ids), *(mark for mark in marks if mark > made)])
            if end == made:
                return
            yield end - made
            made = end


class TextScript:
    """The turns of a file, and the answers that are made of them."""

    def __init__(self, path: Path, tokenizer: Tokenizer, eos: int) -> None:
        self._script, self._tokenizer, self._eos = Script(path, tokenizer), tokenizer, eos
        self._lock = threading.Lock()
        self._draws = itertools.count()

    def read(self) -> dict[str, Any]:
        """The script; another object once it was replaced."""
        with self._lock:
            return self._script.read()

    def answer(self, asked: Asked) -> Played:
        """What is said to a prompt.

        Raises:
            LookupError: no turn matches, and the request is no probe.
        """
        with self._lock:
            turn = self._script.turn(asked.prompt)
        if turn is None:
            if asked.limit > _ECHOED:
                raise LookupError("no turn of the script matches the prompt")
            turn = {"ids": asked.prompt[:1], "chunk": [1]}
        ids: list[int] = []
        for token in self._drawn(turn, asked):
            ids.append(token)
            if token in asked.ends:
                return Played(ids, "stop", turn, turn["chunk"])
            if len(ids) == asked.limit:
                break
        return Played(ids, "length", turn, turn["chunk"])

    def _drawn(self, turn: dict[str, Any], asked: Asked) -> Iterator[int]:
        if "sampled" not in turn:
            while True:
                yield from turn["ids"]
                yield self._eos
        chance = Random(json.dumps([asked.prompt, asked.repeats or next(self._draws)]))
        while True:
            yield from self._tokenizer.encode(chance.choice(_PIECES), add_special_tokens=False).ids
            if chance.random() < _END:
                yield self._eos
