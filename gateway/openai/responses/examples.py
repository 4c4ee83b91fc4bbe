"""Requests that the page at ``/docs`` offers to try."""

from __future__ import annotations

from typing import Any, Final

from gateway.openai.chat.objects import CITY

_ASKED: Final[dict[str, Any]] = {"model": "MODEL", "input": "What is the capital of France?"}
_ANSWERED: Final[dict[str, Any]] = {**_ASKED, "max_output_tokens": 64}
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "One answer": _ANSWERED,
    "A stream": {**_ANSWERED, "stream": True},
    "A function that must be called": {
        **_ANSWERED,
        "tools": [{"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}],
        "tool_choice": "required",
    },
}
TO_COUNT: Final = {"Input": _ASKED}
TO_COMPACT: Final[dict[str, dict[str, Any]]] = {
    "A conversation": {
        "model": "MODEL",
        "input": [
            {"role": "user", "content": "What is the capital of France?"},
            {"role": "assistant", "content": "Paris."},
        ],
    },
}
