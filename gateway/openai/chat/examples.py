"""Chats that the page at ``/docs`` offers to try."""

from __future__ import annotations

from typing import Any, Final

CITY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}},
    "required": ["city"],
    "additionalProperties": False,
}
"""A small schema, of a function's arguments or of an answer."""

_ASKED: Final[dict[str, Any]] = {
    "model": "MODEL",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 64,
}
_WEATHER: Final = {"name": "get_weather", "description": "The weather of a city.", "parameters": CITY}
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "One answer": _ASKED,
    "A stream with usage": {**_ASKED, "stream": True, "stream_options": {"include_usage": True}},
    "Probabilities of tokens": {**_ASKED, "logprobs": True, "top_logprobs": 3},
    "A tool that must be called": {
        **_ASKED,
        "tools": [{"type": "function", "function": _WEATHER}],
        "tool_choice": "required",
    },
    "An answer by a schema": {
        **_ASKED,
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": CITY}},
    },
}
