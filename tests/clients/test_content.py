"""Streamed text equals the whole text where characters span tokens: emoji, CJK, Arabic, code.

The prompts were chosen because SmolLM2 answers them so, greedily, with a clear lead of each token over the next best
one: float32 sums of different batch size differ in their last bits, and only such answers are the same at any load.
"""

from __future__ import annotations

import pytest
from openai import OpenAI

from tests.clients.conftest import MODEL

LEAD = 1e-3  # nats; batch effects of the engine stay well below
PROMPTS = {
    "emoji": ("Continue the sequence: 🍎🍌🍎🍌🍎🍌", 40, "🍎🍌🍎🍌"),
    "joined emoji and flags": ("Repeat this text: 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷", 40, "👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷"),
    "Chinese": ("Repeat this text: 你好，世界", 12, "你好，世界"),  # noqa: RUF001 - Chinese has its own comma
    "Japanese": ("Repeat this text: こんにちは世界", 24, "こんにちは世界"),
    "Arabic": ("Repeat this text: مرحبا بالعالم", 24, "مرحبا بالعالم"),
    "accents, Cyrillic, Greek": (
        "Repeat this text: Привет, мир! Ñandú, čeština, ελληνικά",
        60,
        "Привет, мир! Ñandú, čeština, ελληνικά",
    ),
    "code": ("Write a Python function that adds two numbers.", 40, "```python\ndef add_two_numbers(num1, num2):\n"),
}


@pytest.mark.parametrize(("prompt", "max_tokens", "begins"), PROMPTS.values(), ids=PROMPTS.keys())
def test_deltas_concatenate_to_the_whole_text(client: OpenAI, prompt: str, max_tokens: int, begins: str) -> None:
    whole = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        temperature=0,
        max_tokens=max_tokens,
        logprobs=True,
        top_logprobs=2,
    )
    text = whole.choices[0].message.content or ""
    entries = (whole.choices[0].logprobs and whole.choices[0].logprobs.content) or []
    assert text.startswith(begins)
    assert min(entry.top_logprobs[0].logprob - entry.top_logprobs[1].logprob for entry in entries) > LEAD
    assert b"".join(bytes(entry.bytes or []) for entry in entries).decode(errors="replace") == text

    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": prompt}], temperature=0, max_tokens=max_tokens, stream=True
    )
    deltas = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(deltas) == text
    # A character that is not finished is held back, never shown broken; only the very end may be.
    assert not any("\ufffd" in delta for delta in deltas[:-2])


def test_a_partial_character_has_openai_form_in_log_probs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PROMPTS["emoji"][0]}],
        temperature=0,
        max_tokens=9,
        logprobs=True,
    )
    entries = (answer.choices[0].logprobs and answer.choices[0].logprobs.content) or []
    assert len(entries) == 9
    assert any(entry.token.startswith("bytes:\\xf0") for entry in entries)
