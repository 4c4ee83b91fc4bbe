"""The tokens that the engine answers: a turn's text, or what a seed makes of it, cut where the request ends it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Literal

from asked import Asked
from tokenizers import Tokenizer

Ending = Literal["end_id", "stop_words", "length"]

_WORDS = (
    "the", "other", "one", "interesting", "Grüße", "naïve", "你好", "世界", "東京", "مرحبا", "سلام", "🙂", "👩‍🚀",
    "नमस्ते", "answer", "12345", "\n", "\n\n", "  indented", "it's", "—", "…", "```python", "x = 1", "ein", "Straße",
    "한국어",
)  # fmt: skip
_MEAN_WORDS = 12
_MOST_WORDS = 120
_SPLIT = 0.1  # the share of words that are made of other tokens than the tokenizer would take


def answer(turn: dict[str, Any], asked: Asked, tokenizer: Tokenizer, eos: int) -> tuple[list[int], Ending]:
    """The answer's ids, and what ends it.

    The model says what the turn has, draws its end token, and says the same again where that does not end it. An end id
    is no part of the answer; a stop word is its end.
    """
    ids = sampled(asked, tokenizer) if turn.get("sampled") else turn["ids"]
    said: list[int] = []
    for token in _drawn(ids or asked.prompt[-1:], eos, silent=not ids):
        if token == asked.end_id:
            if asked.effective["min_tokens"] <= max(len(said), 1):
                return said, "end_id"
            continue
        said.append(token)
        so_far = asked.prompt + said
        if any(so_far[-len(word) :] == word for word in asked.stop_words):
            return said, "stop_words"
        if len(said) == asked.max_tokens:
            break
    return said, "length"


def _drawn(ids: list[int], eos: int, *, silent: bool) -> Iterator[int]:
    if silent:
        yield eos
    while True:
        yield from ids
        yield eos


def sampled(asked: Asked, tokenizer: Tokenizer) -> list[int]:
    """An answer of random length: the same for the same prompt and parameters, another for each seed when sampling.

    Some words are made of tokens that the tokenizer would not choose for their text, as a model's often are.
    """
    free = ("greedy", "seed", "temperature", "top_k", "top_p") if not asked.effective["greedy"] else ("greedy",)
    steering = (*free, "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "bad_words")
    key = json.dumps([asked.prompt, [asked.effective[name] for name in steering]])
    dice = random.Random(key)
    count = min(1 + int(dice.expovariate(1 / _MEAN_WORDS)), _MOST_WORDS)
    ids: list[int] = []
    for place in range(count):
        word = dice.choice(_WORDS)
        text = word if place == 0 or word[0] in "\n " else f" {word}"
        ids += _tokens(text, dice, tokenizer, first=place == 0)
    return ids


def _tokens(text: str, dice: random.Random, tokenizer: Tokenizer, *, first: bool) -> list[int]:
    """A word's tokens in mid-text, whatever the tokenizer puts before the first one of a text."""
    cut = dice.randrange(1, len(text)) if len(text) > 1 and dice.random() < _SPLIT else len(text)
    pieces = [text[:cut], text[cut:]]
    if first:
        return _encode(pieces[0], tokenizer) + _within(pieces[1], tokenizer)
    return [token for piece in pieces for token in _within(piece, tokenizer)]


def _within(text: str, tokenizer: Tokenizer) -> list[int]:
    if not text:
        return []
    mark = _encode("\n", tokenizer)
    behind = _encode(f"\n{text}", tokenizer)
    return behind[len(mark) :] if behind[: len(mark)] == mark else _encode(text, tokenizer)


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def log_prob(token: int) -> float:
    """A token's log-prob: any number below 0 that FP32 holds exactly."""
    return -(token % 16 + 1) / 8
