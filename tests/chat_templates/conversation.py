"""A conversation with everything that a template may have to write, and the means to render it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models

from gateway.text.prompt import ChatTemplate, load_template
from gateway.text.tokens import Tokenizer
from gateway.text.tokens.folder import FolderMetadata

ROOT = Path(__file__).parents[2]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {}}}
TOOLS = [WEATHER, CLOCK]
WEATHER_JSON = (
    '{"name": "get_weather", "description": "Weather of a city.", "parameters": '
    '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}'
)
CLOCK_JSON = '{"name": "clock", "description": "The time.", "parameters": {}}'
TOOLS_JSON = f'[{{"type": "function", "function": {WEATHER_JSON}}}, {{"type": "function", "function": {CLOCK_JSON}}}]'
CALLS = [
    {
        "id": "call_aaaaaaaa1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": 'Zürich "ZH"'}},
    },
    {"id": "call_aaaaaaaa2", "type": "function", "function": {"name": "clock", "arguments": {}}},
]
MESSAGES: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting."},
    {"role": "user", "content": "Weather and time?"},
    {"role": "assistant", "content": "One moment.", "reasoning_content": "Two calls.", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "call_aaaaaaaa1", "content": '{"celsius": 21}'},
    {"role": "tool", "tool_call_id": "call_aaaaaaaa2", "content": "12:00"},
]
ANSWER = {"role": "assistant", "content": "21 °C, noon.", "reasoning_content": "Done."}
THANKS = {"role": "user", "content": "Thanks"}


@functools.cache
def _tokenizer(bos: str, eos: str) -> Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.add_special_tokens([bos, eos])
    return Tokenizer(backend, FolderMetadata(special_tokens={"bos_token": bos, "eos_token": eos}))


@functools.cache
def template(name: str, *, bos: str = "<bos>", eos: str = "<eos>") -> ChatTemplate:
    """A shipped template, with the tokens of a tokenizer."""
    return load_template(_tokenizer(bos, eos), ROOT / "chat_templates" / f"{name}.jinja")
