"""Token ids to text, piece by piece, without Triton.

A byte-level token may end in the middle of a character, and many tokenizers drop the space before the first token that
they decode. So a piece cannot be decoded alone: it is decoded behind the ids just before it, and what is new is given
out, except a character that is not complete yet.
"""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

REPLACEMENT = "\ufffd"


class LoadError(ValueError):
    """The model folder cannot be used; the message names the parameter and the environment variable."""


def expand(value: str) -> str:
    """Replace a value ``${NAME}`` by the environment variable; unset gives an empty string."""
    match = re.fullmatch(r"\$\{(\w+)\}", value.strip())
    return os.environ.get(match[1], "") if match else value.strip()


def load_tokenizer(tokenizer_dir: str) -> Tokenizer:
    """Load ``tokenizer.json`` from the folder that the parameter ``tokenizer_dir`` names.

    Raises:
        LoadError: the parameter's environment variable is unset, or there is no such file.
    """
    folder = expand(tokenizer_dir)
    if not folder:
        raise LoadError(f"MODEL_DIR is not set: the parameter tokenizer_dir is {tokenizer_dir!r}")
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise LoadError(f"MODEL_DIR has no tokenizer.json: {path} does not exist (parameter tokenizer_dir)")
    return Tokenizer.from_file(str(path))


def holds_whole_run(tokenizer: Tokenizer) -> bool:
    """Whether a run of replacement characters may all change with the next token.

    A ByteLevel decoder replaces only the last, unfinished character. A byte-fallback decoder replaces every byte of a
    run of byte tokens while the run is not valid UTF-8.
    """
    decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
    kinds = {str(decoder.get("type"))} | {str(one.get("type")) for one in decoder.get("decoders", [])}
    return "ByteLevel" not in kinds


class IncrementalText:
    """The text of one growing sequence of ids.

    Args:
        decode: ids to text.
        hold_run: see ``holds_whole_run``.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], *, hold_run: bool) -> None:
        self._decode = decode
        self._hold_run = hold_run
        self._window: list[int] = []  # ids that are still decoded again with each piece
        self._given = 0  # characters of the window's text that were given out
        self._clean = 0  # ids of the window up to the last point where no character was open

    def push(self, ids: Sequence[int], *, last: bool = False) -> str:
        """Add ids and return the text that they complete; ``last`` gives out an unfinished character as U+FFFD."""
        self._window.extend(ids)
        text = self._decode(self._window)
        stable = len(text) if last else self._stable(text)
        new = text[self._given : stable]
        self._given = max(self._given, stable)
        if stable == len(text):
            self._shift(text)
        return new

    def _stable(self, text: str) -> int:
        if self._hold_run:
            return len(text.rstrip(REPLACEMENT))
        return len(text) - text.endswith(REPLACEMENT)

    def _shift(self, text: str) -> None:
        # The ids since the clean point stay as context, unless they have no text: then a space could get lost.
        context = self._window[self._clean :]
        tail = self._decode(context)
        if tail and text.endswith(tail):
            self._window = context
            self._given = len(tail)
        self._clean = len(self._window)


class TextStates:
    """Decoding states by key, bounded in number and age: the least recently used one goes first.

    Args:
        make: makes a fresh state.
        capacity: states kept at most.
        expiry_s: seconds after its last use at which a state is dropped.
        clock: monotonic seconds.
    """

    def __init__(
        self, make: Callable[[], IncrementalText], *, capacity: int, expiry_s: float, clock: Callable[[], float]
    ) -> None:
        self._make = make
        self._capacity = capacity
        self._expiry_s = expiry_s
        self._clock = clock
        self._states: OrderedDict[Hashable, tuple[float, IncrementalText]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def push(self, key: Hashable, ids: Sequence[int], *, last: bool) -> str:
        """Decode the next ids of a sequence; ``last`` ends it and drops its state."""
        now = self._clock()
        self._expire(now)
        _, state = self._states.pop(key, (now, None))
        if state is None:
            state = self._make()
        text = state.push(ids, last=last)
        if not last:
            self._states[key] = (now, state)
            if len(self._states) > self._capacity:
                self._states.popitem(last=False)
        return text

    def _expire(self, now: float) -> None:
        while self._states:
            key, (used, _) = next(iter(self._states.items()))
            if now - used < self._expiry_s:
                return
            del self._states[key]
