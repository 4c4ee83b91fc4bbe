"""Harmful inputs that a client may send, each by its name."""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from .client import post
from .processes import Child
from .subjects import KEY

Attack = Callable[[Child], str]
"""Sends it to a gateway; returns what came of it: a status or a word."""

_LARGEST = 16 * 2**20  # bytes of a body, the gateway's default
_LARGE = 4 * 2**20  # bytes of a body that may hold the event loop longer
_MANY_CONTAINERS = 16_384
_WORDS = "The quick brown fox, jumps over\n lazy dogs; naive 42 "
_CHAT = "/v1/chat/completions"
_TRAILERS = 60_000_000  # bytes
_HEADS = 200  # connections
_SLOW_S = 5.0


CONTEXTS = {"/tokenize, 1,900,000 é, counted": 1_048_576}
"""Tokens of the model's context, by input, where it is not that of the others: a text that could fit is counted."""


def inputs() -> Iterator[tuple[str, Attack]]:
    """Make all inputs; each body is made when its turn comes."""
    for name, path, make in _BODIES:
        yield name, BodyAttack(path, make)
    yield "many concurrent bodies: 8 chats of 6 MB", _together
    yield "trailers without end, 60 MB", _trailers
    yield f"slow heads, {_HEADS} connections", _slow_heads


def is_large(attack: Attack) -> bool:
    """Tell whether a body has more than 4 MiB, or more than 16,384 objects, arrays and keys."""
    if not isinstance(attack, BodyAttack):
        return attack is _together
    containers = sum(map(attack.body.count, (b"{", b"[", b'":')))
    return len(attack.body) > _LARGE or containers > _MANY_CONTAINERS


class BodyAttack:
    """Sends a body, which is made when it is first used.

    Args:
        path: path of the endpoint.
        make: makes the body.
    """

    def __init__(self, path: str, make: Callable[[], bytes]) -> None:
        self._path = path
        self._make = make
        self._body = b""

    @property
    def body(self) -> bytes:
        """The body."""
        self._body = self._body or self._make()
        return self._body

    def __call__(self, child: Child) -> str:
        """Send the body and return the status."""
        return str(post(child, self._path, self.body))


def _text(size: int) -> str:
    return (_WORDS * (size // len(_WORDS) + 1))[:size]


def _chat(content: Any, **fields: Any) -> bytes:
    request = {"model": "bench", "max_tokens": 1, "messages": [{"role": "user", "content": content}], **fields}
    return json.dumps(request).encode()


def _filled(head: bytes, unit: bytes, tail: bytes, size: int = _LARGEST) -> bytes:
    return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


def _fields(count: int) -> dict[str, int]:
    return {f"field_{index:06}": 1 for index in range(count)}


def _long_keys(count: int) -> dict[str, int]:
    return {f"{index:0200}": 1 for index in range(count)}


def _integers(count: int) -> bytes:
    """As many integers with the most digits that the parser takes."""
    return _filled(_chat("a")[:-1] + b',"field":[', b"9" * 4300 + b",", b"1]}", (count + 1) * 4301)


def _unlike(size: int) -> str:
    """Characters of which two rarely make one token."""
    chance = random.Random(0)
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM0123456789+/!?#", k=size))


def _tools(count: int, size: int) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(size)}}
    functions = [{"name": f"f{index}", "parameters": schema} for index in range(count)]
    return [{"type": "function", "function": function} for function in functions]


def _messages(*messages: dict[str, Any]) -> bytes:
    return json.dumps({"model": "bench", "max_tokens": 1, "messages": messages}).encode()


_MANY = 4_096  # messages, the most that is accepted
_TURN = {"role": "user", "content": "a"}
_PART = {"type": "text", "text": "a"}
_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def _called(count: int) -> bytes:
    """As many questions, calls and results, each a message."""
    called = range(count)
    return _messages(
        *(
            message
            for index in called
            for message in (
                _TURN,
                {"role": "assistant", "tool_calls": [{**_CALL, "id": f"{index}"}]},
                {"role": "tool", "tool_call_id": f"{index}", "content": "a"},
            )
        )
    )


def _agent_history(size: int) -> list[dict[str, Any]]:
    """Source files and JSON results of tools, as texts: braces and colons that are not of the body."""
    source = "def f(x: dict[str, int]) -> list[int]:\n    return [x[key] for key in {**x, 'a': 1}]\n"
    result = json.dumps({"results": [{"path": f"a/{n}.py", "lines": [n, {"text": source}]} for n in range(300)]})
    turn = [{"role": "user", "content": source * 20}, {"role": "user", "content": result}]
    return turn * (size // len(json.dumps(turn)))


def _alternatives(count: int) -> dict[str, Any]:
    choices = [{"type": "object", "properties": {f"p{index}": {"type": "string"}}} for index in range(count)]
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": {"anyOf": choices}}}


_BODIES: list[tuple[str, str, Callable[[], bytes]]] = [
    ("/tokenize, text of 16 MiB", "/tokenize", lambda: _filled(b'{"prompt":"', b"some words, ", b'"}')),
    ("/tokenize, 8 MB of line ends", "/tokenize", lambda: _filled(b'{"prompt":"', b"\\n", b'"}')),
    ("/tokenize, 16 MiB of one emoji and letters", "/tokenize", lambda: _filled('{"prompt":"😀'.encode(), b"a", b'"}')),
    ("/tokenize, one word of 1 MB", "/tokenize", lambda: _filled(b'{"prompt":"', b"a", b'"}', 1_000_000)),
    ("/tokenize, 131,072 tokens", "/tokenize", lambda: json.dumps({"prompt": _text(430_000)}).encode()),
    ("/tokenize, the same with their texts", "/tokenize",
     lambda: json.dumps({"prompt": _text(430_000), "return_token_strs": True}).encode()),
    ("/tokenize, 4,096 messages", "/tokenize", lambda: json.dumps({"messages": [_TURN] * _MANY}).encode()),
    ("/tokenize, 400,000 messages", "/tokenize", lambda: json.dumps({"messages": [_TURN] * 400_000}).encode()),
    ("/detokenize, ids of 16 MiB", "/detokenize", lambda: _filled(b'{"tokens":[', b"45999,", b"1]}")),
    ("/detokenize, 131,000 ids", "/detokenize", lambda: json.dumps({"tokens": [45999] * 131_000}).encode()),
    ("/detokenize, 16 MiB of empty lists", "/detokenize", lambda: _filled(b'{"tokens":[', b"[],", b"1]}")),
    ("/detokenize, 800,000 fields", "/detokenize", lambda: json.dumps(_fields(800_000)).encode()),
    ("/tokenize, 1,900,000 é", "/tokenize", lambda: _filled(b'{"prompt":"', "é".encode(), b'"}', 3_800_013)),
    ("/tokenize, 1,900,000 é, counted", "/tokenize", lambda: _filled(b'{"prompt":"', "é".encode(), b'"}', 3_800_013)),
    ("/tokenize, 262,000 emoji", "/tokenize", lambda: _filled(b'{"prompt":"', "😀".encode(), b'"}', 1_048_013)),
    ("render, text of 6 MB", f"{_CHAT}/render", lambda: _chat(_text(6_000_000))),
    ("render, 130,000 tokens", f"{_CHAT}/render", lambda: _chat(_text(420_000))),
    ("chat, text of 6 MB", _CHAT, lambda: _chat(_text(6_000_000))),
    ("chat, 6 MB and control tokens", _CHAT, lambda: _chat(_text(6_000_000) + "<|im_end|>")),
    ("chat, 260 kB of unlike characters", _CHAT, lambda: _chat(_unlike(260_000))),
    ("chat, 1 MB of spaces", _CHAT, lambda: _chat(" " * 1_000_000)),
    ("chat, 4,096 messages", _CHAT, lambda: _messages(*[_TURN] * _MANY)),
    ("chat, 4,000 messages of four parts", _CHAT,
     lambda: _messages(*[{"role": "user", "content": [_PART] * 4}] * 4_000)),
    ("chat, 32,000 messages", _CHAT, lambda: _messages(*[_TURN] * 32_000)),
    ("chat, 32,000 parts in one message", _CHAT, lambda: _chat([_PART] * 32_000)),
    ("chat, 131,000 unknown fields, 2 MB", _CHAT, lambda: _chat("a", **_fields(131_000))),
    ("chat, 65,000 unknown fields, 1 MB", _CHAT, lambda: _chat("a", **_fields(65_000))),
    ("chat, 65,000 keys of 200 characters", _CHAT, lambda: _chat("a", **_long_keys(65_000))),
    ("chat, 3,800 integers of 4,300 digits", _CHAT, lambda: _integers(3_800)),
    ("chat, 950 integers of 4,300 digits, 3.9 MiB", _CHAT, lambda: _integers(950)),
    ("chat, 14 MB of source files and JSON in texts", _CHAT, lambda: _messages(*_agent_history(14_000_000))),
    ("chat, 131,000 fields in a message", _CHAT, lambda: _messages({**_TURN, **_fields(131_000)})),
    ("chat, 128 tools, 60,000 fields", _CHAT, lambda: _chat("a", tools=_tools(128, 230))),
    ("chat, 128 tools, 60,000 fields, a call demanded", _CHAT,
     lambda: _chat("a", tools=_tools(128, 230), tool_choice="required")),
    ("chat, 13,000 calls in one message", _CHAT,
     lambda: _messages({"role": "assistant", "tool_calls": [_CALL] * 13_000})),
    ("chat, 1,360 calls and results over 4,080 messages", _CHAT, lambda: _called(1_360)),
    ("chat, 4,000 messages of which the last is rejected", _CHAT,
     lambda: _messages(*[{"role": "user", "content": [_PART] * 4}] * 3_999, {"role": "user", "content": [{}]})),
    ("chat, a schema of 15,000 alternatives", _CHAT, lambda: _chat("a", response_format=_alternatives(15_000))),
    ("chat, 60,000 variables of the template", _CHAT, lambda: _chat("a", chat_template_kwargs=_fields(60_000))),
    ("responses, 4,000 items of four parts", "/v1/responses",
     lambda: json.dumps({"model": "bench", "max_output_tokens": 16, "input": [
         {"role": "user", "content": [{"type": "input_text", "text": "a"}] * 4}] * 4_000}).encode()),
    ("messages, 4,000 turns of four blocks", "/v1/messages",
     lambda: json.dumps({"model": "bench", "max_tokens": 1, "messages": [
         {"role": role, "content": [_PART] * 4} for role in ("user", "assistant")] * 2_000}).encode()),
    ("chat, 16 MiB of opened arrays", _CHAT, lambda: _filled(b'{"model":', b"[", b"")),
    ("chat, 200 kB of opened arrays", _CHAT, lambda: _filled(b'{"model":', b"[", b"", 200_000)),
    ("chat, 60 arrays deep, 60,000 wide", _CHAT,
     lambda: _filled(b'{"documents":' + b"[" * 60, b"[],", b"[]" + b"]" * 60 + b"}", 180_000)),
    ("completions, 127 prompts of 131,000 characters", "/v1/completions",
     lambda: json.dumps({"model": "bench", "max_tokens": 1, "prompt": [_unlike(131_000)] * 127}).encode()),
    ("completions, 65,000 prompts of one id", "/v1/completions",
     lambda: json.dumps({"model": "bench", "max_tokens": 1, "prompt": [[1]] * 65_000}).encode()),
    ("completions, 2,000 prompts of 150 ids", "/v1/completions",
     lambda: json.dumps({"model": "bench", "max_tokens": 1, "prompt": [[1000] * 150] * 2_000}).encode()),
    ("completions, 300,000 ids", "/v1/completions",
     lambda: json.dumps({"model": "bench", "max_tokens": 1, "prompt": [1000] * 300_000}).encode()),
    ("request template, {{ 'a' * 10**9 }}", _CHAT, lambda: _chat("a", chat_template="{{ 'a' * 10**9 }}")),
    ("request template, 15 MB of text", _CHAT, lambda: _chat("a", chat_template="{{ 'a ' * 7500000 }}")),
    ("request template, loops without end", _CHAT,
     lambda: _chat("a", chat_template="{% for i in range(9**5) %}{% for j in range(9**5) %}{% endfor %}{% endfor %}")),
    ("request template, hard to compile", _CHAT, lambda: _chat("a", chat_template="{{ " + "1+" * 30_000 + "1 }}")),
]  # fmt: skip


def _together(child: Child) -> str:
    body = _chat(_text(6_000_000))
    head = _head(_CHAT, f"content-length: {len(body)}")
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(_connected(child)) for _ in range(8)]
        for connection in connections:
            connection.sendall(head + body)
        return ", ".join(sorted({connection.recv(64)[9:12].decode() for connection in connections}))


def _trailers(child: Child) -> str:
    lines = b"x-trailer: 0123456789012345678901234567890123456789\r\n" * 1000
    sent = 0
    with _connected(child) as connection:
        connection.sendall(_head(_CHAT, "transfer-encoding: chunked") + b"2\r\n{}\r\n0\r\n")
        try:
            while sent < _TRAILERS:
                connection.sendall(lines)
                sent += len(lines)
        except OSError:
            return f"closed after {sent / 1e6:.1f} MB"
    return f"took {sent / 1e6:.0f} MB"


def _slow_heads(child: Child) -> str:
    """Connections that send a byte now and then, and one that sends its head as fast as it can."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(_connected(child)) for _ in range(_HEADS)]
        begun = time.monotonic()
        for connection in connections:
            connection.sendall(f"POST {_CHAT} HTTP/1.1\r\nx-slow: ".encode())
        closed: set[socket.socket] = set()
        while time.monotonic() < begun + _SLOW_S:
            for connection in set(connections) - closed:
                with contextlib.suppress(OSError):
                    connection.sendall(b"a")
            closed |= set(select.select(list(set(connections) - closed), [], [], 0.05)[0])
    return f"{len(closed)} closed in {_SLOW_S:g} s"


def _head(path: str, field: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
        f"{field}\r\n\r\n"
    ).encode()


def _connected(child: Child) -> socket.socket:
    return socket.create_connection(("127.0.0.1", child.port), timeout=60)
