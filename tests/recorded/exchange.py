"""A request, and what became of it as text: all that a client sees, and what the engine was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.recorded.gateways import Gateways

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
_LONG = 400
_LINE = 120
_SHOWN = 2000
_HEADERS = (
    "content-type", "content-length", "content-encoding", "x-request-id", "x-ignored-parameters",
    "x-strict-schema-deviations", "x-should-retry", "retry-after", "allow", "www-authenticate", "accept-encoding",
    "cache-control", "x-accel-buffering", "connection", "vary", "location", "access-control-allow-origin",
    "access-control-allow-methods", "access-control-allow-headers", "access-control-allow-credentials",
    "access-control-allow-private-network", "access-control-expose-headers", "access-control-max-age",
)  # fmt: skip
# What differs from time to time and from machine to machine.
_VARIABLE = (
    (r"\b((?:chat)?cmpl|rerank|score|classify|pool)-[0-9a-f]{32}\b", r"\1-ID"),
    (r"\b(resp|conv|msg|rs|fc|ctc|cmp)_[0-9a-f]{32}(?:[0-9a-f]{4})?\b", r"\1_ID"),
    (r"\bsealed1\.[\w=-]+", "SEALED"),
    (r"\b(call|toolu)_[A-Za-z0-9]{24}\b", r"\1_ID"),
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r'("(?:created|created_at|completed_at)":\s?)\d{10}\b', r"\g<1>0"),
    (r"\b127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r'("obfuscation":)"([^"]*)"', lambda found: f'{found[1]}"{len(found[2])} characters"'),
    (r'("(?:gateway_)?version":\s?)"\d[^"]*"', r'\1"VERSION"'),
)


@dataclass(frozen=True)
class Case:
    """A request.

    Attributes:
        name: of the case; no other of its area has it.
        path: of the URL, with its query.
        body: an object that is sent as JSON, or bytes; None is none.
        method: of HTTP.
        headers: besides the client's own; None as a value leaves one of these out.
        guarded: whether it goes to the gateway with keys.
        cut_short: whether a choice fails and ends the others, of which the engine was asked or not yet.
    """

    name: str
    path: str
    body: Any = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    guarded: bool = False
    cut_short: bool = False

    @property
    def paced(self) -> bool:
        """Whether the answer tells which tokens came together: those are some or others with the transport h2."""
        options = self.body.get("stream_options") if isinstance(self.body, dict) else None
        return bool(options and options.get("continuous_usage_stats"))

    def content(self) -> bytes | None:
        """The body as it is sent."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, ensure_ascii=False).encode()


def chat(name: str, say: str = "Hello", /, **body: Any) -> Case:
    """A chat whose answer is ``say``; a ``body`` with messages has its own."""
    return Case(name, CHAT, {"model": "chat", "messages": user(say), **body}, headers=_JSON)


def complete(name: str, say: Any = "say:Hello", /, **body: Any) -> Case:
    """A completion of a prompt."""
    return Case(name, COMPLETIONS, {"model": "chat", "prompt": say, **body}, headers=_JSON)


def post(name: str, path: str, **body: Any) -> Case:
    """Another request with a body of JSON."""
    return Case(name, path, body, headers=_JSON)


def user(say: str) -> list[dict[str, Any]]:
    """A conversation of one message."""
    return [{"role": "user", "content": f"say:{say}"}]


_JSON = {"content-type": "application/json"}


def exchange(case: Case, world: Gateways) -> str:
    """Send a request, and write down what came of it."""
    client = world.guarded if case.guarded else world.open
    content = case.content()
    answer = client.request(case.method, case.path, content=content, headers=dict(case.headers))
    own = [f"{name}: {value}" for name, value in case.headers.items()]
    given = [f"{name}: {_value(name, answer.headers[name])}" for name in _HEADERS if name in answer.headers]
    if int(answer.headers.get("content-length", 0)) > 0 and case.method != "HEAD":
        given = [line for line in given if not line.startswith("content-length")]  # ids and times have one length each
    lines = [f"{case.method} {case.path}", *own]
    if content is not None:
        lines += ["", _shortened(content)]
    lines += ["", str(answer.status_code), *given, "", _body(answer)]
    if case.cut_short:  # what it asked may arrive when the next case has begun
        world.triton.untold.add(case.body["messages"][0]["content"])
    asked = [_fixed(line, world) for line in world.triton.asked()]
    return _fixed("\n".join(lines), world) + "".join(f"\n\n-> {line}" for line in asked) + "\n"


def _value(name: str, value: str) -> str:
    return ", ".join(sorted(value.split(", "))) if name == "allow" else value  # the framework has a set of methods


def _shortened(content: bytes) -> str:
    text = content.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:100]} ... {text[-100:]} ({len(content)} bytes)"


def _fixed(text: str, world: Gateways) -> str:
    text = text.replace(str(world.folder), "FOLDER")
    for pattern, fixed in _VARIABLE:
        text = re.sub(pattern, fixed, text)
    return text


def _body(answer: httpx.Response) -> str:
    """The body: a stream's choices one after the other, and long JSON on many lines where that loses nothing."""
    text = answer.content.decode("utf-8", "backslashreplace")
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return _ordered(text)
    if len(text) > _LONG and answer.headers.get("content-type") == "application/json":
        value = json.loads(text)
        if json.dumps(value, ensure_ascii=False, separators=(",", ":")) == text:
            return _lines(value)
    return text


def _lines(value: Any, depth: int = 0) -> str:
    """JSON in which what is short stands on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or len(line) <= _LINE - depth:
        return line
    step, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, list):
        return f"[{step}" + f",{step}".join(_lines(each, depth + 1) for each in value) + f"{end}]"
    items = (f"{json.dumps(name, ensure_ascii=False)}: {_lines(each, depth + 1)}" for name, each in value.items())
    return f"{{{step}" + f",{step}".join(items) + f"{end}}}"


def _ordered(text: str) -> str:
    """The events of a stream of several choices, which come as they come, by choice."""
    *events, rest = text.split("\n\n")
    choices = [_choice(event) for event in events]
    last = max(choices, default=0)
    keys = [last + 1 if choice < 0 else choice for choice in choices]
    ordered = sorted(zip(keys, events, strict=True), key=lambda pair: pair[0])
    return "".join(f"{event}\n\n" for _, event in ordered) + rest


def _choice(event: str) -> int:
    """The choice that an event is of; -1 where it is of none."""
    found = re.match(r'data: \{.*?"choices":\[\{"index":(\d+)', event)
    return int(found[1]) if found else -1
