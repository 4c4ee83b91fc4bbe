"""CPU to parse the body of a request, beside jiter alone and the standard library's json."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import jiter

from gateway.api.openai.request_json import parse_body

from .relay import Tell

_REPETITIONS = 40  # in a round
_PARSERS: dict[str, Callable[[bytes], object]] = {
    "gateway": parse_body,
    "jiter": lambda body: jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys"),
    "json": json.loads,
}
_WORDS = (
    "the",
    "of",
    "model",
    "token",
    "value",
    "path",
    "file",
    "return",
    "class",
    "def",
    "self",
    "name",
    "error",
    "that",
)
_BETWEEN = [*" " * 24, "\n", "\n", ": ", "(", ")", ", ", "."]


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Parse each body in turns with each parser; the least CPU time of all repetitions counts.

    Args:
        rounds: how often all bodies are gone through.
        tell: of each row.
    """
    bodies = _bodies()
    least: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for name, body in bodies.items():
            for _ in range(_REPETITIONS):
                for parser, parse in _PARSERS.items():
                    began = time.thread_time()
                    parse(body)
                    key = (name, parser)
                    least[key] = min(least.get(key, 1.0), time.thread_time() - began)
    rows = [
        {"body": name, "bytes": len(body), **{parser: round(least[name, parser] * 1000, 3) for parser in _PARSERS}}
        for name, body in bodies.items()
    ]
    for row in rows:
        tell(" ".join(f"{key}={value}" for key, value in row.items()))
    return {"rounds": rounds, "rows": rows}


def _bodies() -> dict[str, bytes]:
    chance = random.Random(1)
    texts = {"2 MB, ten texts": (10, 200_000), "2 MB, 2,000 messages": (2_000, 1_000)}
    return {
        "27 KB of an agent": _agent(chance, 27_000, tools=14),
        "135 KB of an agent": _agent(chance, 135_000, tools=24),
        **{
            name: _encoded([{"role": "user", "content": _text(chance, size)} for _ in range(count)])
            for name, (count, size) in texts.items()
        },
    }


def _agent(chance: random.Random, size: int, tools: int) -> bytes:
    """A history of calls and results, under tools of six properties each."""
    properties = {f"p{index}": {"type": "string", "description": _text(chance, 60)} for index in range(6)}
    parameters = {"type": "object", "properties": properties, "required": ["p0", "p1"]}
    functions = [
        {"name": f"tool_{index}", "description": _text(chance, 300), "parameters": parameters} for index in range(tools)
    ]
    listed = [{"type": "function", "function": function} for function in functions]
    messages: list[dict[str, Any]] = [{"role": "system", "content": _text(chance, 3000)}]
    while len(_encoded(messages, tools=listed)) < size:
        call = {"name": "tool_1", "arguments": json.dumps({"p0": _text(chance, 80)})}
        calls = [{"id": f"call_{len(messages)}", "type": "function", "function": call}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": _text(chance, 700)})
    return _encoded(messages, tools=listed)


def _text(chance: random.Random, size: int) -> str:
    words = (chance.choice(_WORDS) + chance.choice(_BETWEEN) for _ in range(size // 4))
    return "".join(words)[:size]


def _encoded(messages: list[dict[str, Any]], **fields: Any) -> bytes:
    return json.dumps({"model": "bench", "stream": True, "messages": messages, **fields}).encode()
