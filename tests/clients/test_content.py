"""Streamed text equals the whole text where characters span tokens: emoji, CJK, Arabic, code.

The prompts were chosen because SmolLM2 answers them so, greedily, with a clear lead of each token over the next best
one: float32 sums of different batch size differ in their last bits, and only such answers are the same at any load.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.clients.conftest import MODEL
from tests.stack import GatewayProcess

LEAD = 1e-3  # nats; batch effects of the engine stay well below
PROMPTS = {
    "emoji": ("Continue the sequence: 🍎🍌🍎🍌🍎🍌", 16, "🍎🍌🍎🍌"),
    "joined emoji and flags": ("Repeat this text: 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷", 36, "👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷"),
    "Chinese": ("Repeat this text: 你好，世界", 12, "你好，世界"),  # noqa: RUF001 - Chinese has its own comma
    "Japanese": ("Repeat this text: こんにちは世界", 18, "こんにちは世界"),
    "Arabic": ("Repeat this text: مرحبا بالعالم", 14, "مرحبا بالعالم"),
    "accents, Cyrillic, Greek": (
        "Repeat this text: Привет, мир! Ñandú, čeština, ελληνικά",
        34,
        "Привет, мир! Ñandú, čeština, ελληνικά",
    ),
    "code": ("Write a Python function that adds two numbers.", 20, "```python\ndef add_two_numbers(num1, num2):\n"),
}


LONG = ("joined emoji and flags", "Japanese", "accents, Cyrillic, Greek")
NAMES = [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in PROMPTS]


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest, gateway: GatewayProcess) -> dict[str, tuple[ChatCompletion, list[str]]]:
    """Whole answer and deltas of the stream for each selected prompt. All are asked at once, which costs a third."""
    specs = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    names = [name for name in PROMPTS if any(spec.get("name") == name for spec in specs)]

    async def ask_all() -> list[tuple[ChatCompletion, list[str]]]:
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
            return await asyncio.gather(*(ask(client, *PROMPTS[name][:2]) for name in names))

    return dict(zip(names, asyncio.run(ask_all()), strict=True))


async def ask(client: AsyncOpenAI, prompt: str, max_tokens: int) -> tuple[ChatCompletion, list[str]]:
    create = client.chat.completions.create
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": prompt}]
    asked: dict[str, Any] = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": max_tokens}

    async def stream() -> list[str]:
        return [chunk.choices[0].delta.content or "" async for chunk in await create(**asked, stream=True)]

    whole, deltas = await asyncio.gather(create(**asked, logprobs=True, top_logprobs=2), stream())
    return whole, deltas


@pytest.mark.parametrize("name", NAMES)
def test_deltas_concatenate_to_the_whole_text(answers: dict[str, tuple[ChatCompletion, list[str]]], name: str) -> None:
    whole, deltas = answers[name]
    text = whole.choices[0].message.content or ""
    entries = (whole.choices[0].logprobs and whole.choices[0].logprobs.content) or []
    assert text.startswith(PROMPTS[name][2])
    assert min(entry.top_logprobs[0].logprob - entry.top_logprobs[1].logprob for entry in entries) > LEAD
    assert b"".join(bytes(entry.bytes or []) for entry in entries).decode(errors="replace") == text
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
