"""The cost of first and later turns of conversations, each on a connection of its own."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import re
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from gateway.text.prompt import load_template
from gateway.text.tokens import Tokenizer

from .client import call
from .processes import ROOT, Child, SyntheticTriton
from .relay import Tell
from .subjects import Subject, start, tokenizer_folder, transports, write_repository

_MESSAGE = 1250  # characters, of about 400 tokens
LATER = 4  # turns of each conversation
_MOST_WORKERS = 4
_COUNTED = re.compile(r'gateway_tokenized_tokens_total\{.*source="(\w+)"\} ([\d.e+]+)')


@dataclass(frozen=True)
class Size:
    """Conversations of one size.

    Attributes:
        tokens: of a prompt, about.
        messages: of a conversation.
        conversations: in each round.
    """

    tokens: int
    messages: int
    conversations: int


SIZES = (Size(1_000, 3, 64), Size(8_000, 21, 24), Size(60_000, 151, 6))


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """CPU of first and of later turns, by transport and workers, beside the tokenizer's own time in the same round."""
    rows = []
    with contextlib.ExitStack() as stack:
        alone = [stack.enter_context(_process()) for _ in range(_MOST_WORKERS)]
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        triton.pace(0)
        for transport in transports()[1]:
            for workers in (1, _MOST_WORKERS):
                subject = Subject("gateway", "tokens", transport)
                with start(subject, triton, workers=workers) as child:
                    for size in SIZES:
                        found = [_round(child, size, alone[:workers], number) for number in range(rounds + 1)][1:]
                        middle = {name: round(statistics.median(each[name] for each in found), 3) for name in found[0]}
                        rows.append({"transport": transport, "workers": workers, "prompt": size.tokens, **middle})
                        tell(str(rows[-1]))
    return {"later_turns": LATER, "rows": rows}


class _Whole:
    """The tokenizer by itself: what it costs to render and tokenize a prompt whole."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_folder(tokenizer_folder())
        self._template = load_template(self._tokenizer)

    def cost(self, messages: Sequence[dict[str, str]]) -> tuple[float, int]:
        """CPU milliseconds of tokenizing alone, and tokens."""
        text = self._template.render(messages)
        begun = time.thread_time()
        count = len(self._tokenizer.encode(text))
        return (time.thread_time() - begun) * 1000, count


_whole: _Whole | None = None  # of a process of ``_process``


def _process() -> ProcessPoolExecutor:
    """A process that does nothing but tokenize."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _cost(messages: Sequence[dict[str, str]]) -> tuple[float, int]:
    global _whole  # noqa: PLW0603 - one for each process
    _whole = _whole or _Whole()
    return _whole.cost(messages)


def _costs(
    alone: Sequence[ProcessPoolExecutor], talks: Iterable[Sequence[dict[str, str]]]
) -> Iterator[tuple[float, int]]:
    """What tokenizing alone costs in these processes, of which each prompt goes to one by chance, as to a worker.

    Where they are more than the machine's cores, each finds the caches of its core filled by another.
    """
    ways = random.Random(0)
    for talk in talks:
        yield ways.choice(alone).submit(_cost, talk).result()


def _round(child: Child, size: Size, alone: Sequence[ProcessPoolExecutor], number: int) -> dict[str, float]:
    """Conversations that nobody has had before: all first turns, then all later ones."""
    talks = list(conversations(size, f"{child.port} {number}"))
    one = list(_costs(alone[:1], talks))
    costs = list(_costs(alone, talks)) if len(alone) > 1 else one
    first_ms, first_rate = _asked(child, talks)
    later = [_asked(child, [talk + more(turn) for talk in talks]) for turn in range(1, LATER + 1)]
    return {
        "tokens": statistics.mean(count for _, count in costs),
        "tokenizer_ms": statistics.mean(milliseconds for milliseconds, _ in one),
        "tokenizers_ms": statistics.mean(milliseconds for milliseconds, _ in costs),
        "first_ms": first_ms,
        "first_known": first_rate,
        "later_ms": statistics.mean(milliseconds for milliseconds, _ in later),
        "later_known": statistics.mean(rate for _, rate in later),
    }


def _asked(child: Child, talks: Sequence[list[dict[str, str]]]) -> tuple[float, float]:
    """CPU milliseconds of each request, and the share of the tokens that was known."""
    before = _counted(child)
    spent = cpu_ms(child, talks)
    cache, tokenizer = (after - earlier for after, earlier in zip(_counted(child), before, strict=True))
    return spent, cache / (cache + tokenizer)


def cpu_ms(child: Child, talks: Sequence[list[dict[str, str]]]) -> float:
    """CPU milliseconds of each request, an answer of two tokens to each conversation.

    Raises:
        BenchmarkError: a request was refused.
    """
    bodies = [json.dumps({"model": "bench", "max_tokens": 2, "stream": True, "messages": talk}) for talk in talks]
    begun = child.cpu_s()
    for body in bodies:
        call(child, "POST", "/v1/chat/completions", body.encode())
    return (child.cpu_s() - begun) * 1000 / len(talks)


def _counted(child: Child) -> tuple[float, float]:
    """Tokens of prompts so far, from the cache and from the tokenizer."""
    found = dict(_COUNTED.findall(call(child, "GET", "/metrics").decode()))
    return float(found.get("cache", 0)), float(found.get("tokenizer", 0))


def conversations(size: Size, seed: str) -> Iterator[list[dict[str, str]]]:
    """Conversations that no other seed has."""
    ways = random.Random(f"{seed} {size.tokens}")
    source = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    source = source.replace("<|", "< |")  # texts of control tokens are read another, longer way
    for _ in range(size.conversations):
        starts = [ways.randrange(len(source) - _MESSAGE) for _ in range(size.messages)]
        yield [
            {"role": "assistant" if index % 2 else "user", "content": source[start : start + _MESSAGE]}
            for index, start in enumerate(starts)
        ]


def more(turn: int) -> list[dict[str, str]]:
    """The messages of later turns, two short ones for each."""
    return [
        {"role": role, "content": f"{text} {index}"}
        for index in range(turn)
        for role, text in (("assistant", "That is how it is done, step"), ("user", "And what comes after step"))
    ]
