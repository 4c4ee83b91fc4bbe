"""Answers for the synthetic Triton to give: prose, reasoning before it, a tool call after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.text.tokens import Tokenizer

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
# No quotation marks, backslashes or line ends: it also stands inside of JSON strings.
_PROSE = (
    " The harbour wakes before the town does. Two boats come in with the tide, and gulls circle over the nets that the"
    " women mend on the quay. Somebody has put a kettle on; its steam drifts past the window of the office, where the"
    " harbour master counts crates and writes their number into a long green book. By nine o'clock the fish are sold,"
    " the stones are wet from the hoses, and children run to school along the wall."
)


@dataclass(frozen=True)
class Answer:
    """An answer that the engine generates.

    Attributes:
        ids: its token ids.
        events: least number of events for a client: one for each token but those that a parser takes or holds.
    """

    ids: tuple[int, ...]
    events: int


Write = Callable[[Tokenizer, int], Answer]
"""A function from a number of tokens to an answer of that length."""


def prose(tokenizer: Tokenizer, tokens: int) -> Answer:
    """Plain text."""
    return Answer(_prose(tokenizer, tokens), tokens)


def reasoning(tokenizer: Tokenizer, tokens: int) -> Answer:
    """An answer with its first half between think tags."""
    opening, closing = tokenizer.encode("<think>\n"), tokenizer.encode("\n</think>\n\n")
    text = tokens - len(opening) - len(closing)
    thought = text // 2
    ids = (*opening, *_prose(tokenizer, thought), *closing, *_prose(tokenizer, text - thought))
    return Answer(ids, text)


def call(tokenizer: Tokenizer, tokens: int) -> Answer:
    """An answer of half text, then a call of ``TOOL`` with a long argument, which clients get when it is whole."""
    opening = tokenizer.encode('\n<tool_call>\n{"name": "weather", "arguments": {"city": "')
    closing = tokenizer.encode('"}}\n</tool_call>')
    text = tokens // 2
    argument = tokens - text - len(opening) - len(closing)
    ids = (*_prose(tokenizer, text), *opening, *_prose(tokenizer, argument), *closing)
    return Answer(ids, text)


def _prose(tokenizer: Tokenizer, tokens: int) -> tuple[int, ...]:
    part = tokenizer.encode(_PROSE)
    return tuple((part * (tokens // len(part) + 1))[:tokens])
