"""A small server that holds every promise of OpenAI's API, unless it is told to lie."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.handler_server import HandlerServer

MODEL = "honest"
KEY = "sk-right"
CONTEXT = 3000
_WORDS = ("ash", "birch", "cedar", "elm", "fir", "larch", "maple", "oak", "pine", "yew")
_ALTERNATIVES = 20
_SLOW_FROM = 500  # tokens: such an answer is there to be left


@dataclass
class Reply:
    """An answer before it is sent: JSON, or events."""

    status: int = 200
    json: Any = None
    events: list[Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None

    def chunks(self) -> Iterator[dict[str, Any]]:
        yield from (event for event in self.events or () if isinstance(event, dict))

    def choices(self) -> Iterator[dict[str, Any]]:
        """Of a whole answer, or of all chunks."""
        whole = [self.json] if isinstance(self.json, dict) else []
        for part in (*whole, *self.chunks()):
            yield from part.get("choices", ())


Before = Callable[[dict[str, Any]], object]
After = Callable[[dict[str, Any], Reply], object]


@dataclass(frozen=True)
class Lie:
    """What is done to a request before it is answered, or to an answer before it is sent."""

    before: Before = lambda _: None
    after: After = lambda *_: None
    path: str = "/v1/chat/completions"
    takes_every_key: bool = False
    counts_for_ever: bool = False
    gauge: str = "vllm:num_requests_running"
    engine_counts: bool | None = None  # work that was left, though the server counts it no longer; None: no gauge of it
    goes_on_s: float = 0.0  # with it the server has one slot


class RejectedError(Exception):
    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        self.reply = Reply(status, {"error": error})


class HonestServer(HandlerServer):
    """The server; a context manager."""

    def __init__(self, lie: Lie | None = None) -> None:
        self.lie = lie or Lie()
        self.running = 0
        self.left = 0
        self.ids = itertools.count(1)
        self.lock = threading.Lock()
        self.slot = threading.Lock()
        super().__init__(type("Handler", (_Handler,), {"owner": self}))


class _Handler(BaseHTTPRequestHandler):
    owner: HonestServer

    def do_GET(self) -> None:
        if self.path == "/metrics":
            page = f'{self.owner.lie.gauge}{{m="x"}} {self.owner.running}.0\n'
            if self.owner.lie.engine_counts is not None:
                for kind, count in (("max", 8), ("active", self.owner.left * self.owner.lie.engine_counts)):
                    page += f'nv_trt_llm_request_metrics{{model="x",request_type="{kind}",version="1"}} {count}\n'
            self._send(Reply(raw=page.encode()), {})
        else:
            self._answer({}, lambda: _listing(self.path))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if isinstance(body, dict):
            if self.owner.lie.path == self.path:
                self.owner.lie.before(body)
            left = self.owner.left
            with self.owner.slot if self.owner.lie.goes_on_s else contextlib.nullcontext():
                self._answer(body, lambda: _generate(self.path, body, self.owner))
                if self.owner.left != left:
                    self.owner.closing.wait(self.owner.lie.goes_on_s)
        else:
            self._answer({}, lambda: _no_object(raw))

    def _answer(self, body: dict[str, Any], make: Callable[[], Reply]) -> None:
        right = self.headers.get("Authorization") == f"Bearer {KEY}" or self.owner.lie.takes_every_key
        try:
            reply = make() if right else RejectedError("This key is not known.", None, 401, "invalid_api_key").reply
        except RejectedError as refusal:
            reply = refusal.reply
        body["path"] = self.path
        if self.path.startswith(self.owner.lie.path):
            self.owner.lie.after(body, reply)
        self._send(reply, body)

    def _send(self, reply: Reply, body: dict[str, Any]) -> None:
        self.send_response(reply.status)
        kind = "application/json" if reply.events is None else "text/event-stream"
        for name, value in ({"Content-Type": kind} | reply.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if reply.raw is not None:
            self.wfile.write(reply.raw)
        elif reply.events is None:
            self.wfile.write(json.dumps(reply.json).encode())
        else:
            self._stream(reply.events, slow=body.get("max_tokens", 0) > _SLOW_FROM)

    def _stream(self, events: list[Any], *, slow: bool) -> None:
        with self.owner.lock:
            self.owner.running += 1
        try:
            for event in events:
                data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
                self.wfile.write(f"data: {data}\n\n".encode())
                if slow:
                    time.sleep(0.01)  # a model that takes its time
        except OSError:
            self.owner.left += 1
        finally:
            if not self.owner.lie.counts_for_ever:
                with self.owner.lock:
                    self.owner.running -= 1


def _no_object(raw: bytes) -> Reply:
    raise RejectedError(f"The body is no JSON object: {len(raw)} bytes.")


def _listing(path: str) -> Reply:
    entry = {"id": MODEL, "object": "model", "created": 1700000000, "owned_by": "tests", "max_model_len": CONTEXT}
    if path == "/v1/models":
        return Reply(json={"object": "list", "data": [entry]})
    if path == f"/v1/models/{MODEL}":
        return Reply(json=entry)
    raise RejectedError(f"Nothing is at {path}.", None, 404, "model_not_found" if "/models/" in path else "unknown_url")


_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "n": (1, 8),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_logprobs": (0, 20),
    "max_tokens": (0, 10**6),
    "max_completion_tokens": (1, 10**6),
    "seed": (-(2**63), 2**63),
}
_OTHERS = {"model", "messages", "prompt", "stream", "stream_options", "stop", "logprobs", "logit_bias", "echo"}
_OTHERS |= {"response_format", "tools", "tool_choice"}


def _faults(path: str, body: dict[str, Any]) -> Iterator[str]:
    """The parameters at fault."""
    yield from (name for name in body if name not in _RANGES and name not in _OTHERS)
    for name, (low, high) in _RANGES.items():
        value = body.get(name, low)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            yield name
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    choice = body.get("tool_choice")
    wrong = {
        "model": not isinstance(body.get("model"), str),
        "stream": not isinstance(body.get("stream", False), bool),
        "stream_options": "stream_options" in body and not body.get("stream"),
        "top_logprobs": path.endswith("/chat/completions") and "top_logprobs" in body and not body.get("logprobs"),
        "stop": not isinstance(body.get("stop", ""), str | list),
        "logit_bias": any(abs(value) > 100 for value in body.get("logit_bias", {}).values()),
        "response_format": body.get("response_format", {}).get("type", "text") not in _FORMS,
        "tool_choice": isinstance(choice, dict) and choice["function"]["name"] not in names,
    }
    yield from (name for name, is_wrong in wrong.items() if is_wrong)


_FORMS = {"text", "json_object", "json_schema"}


def _validate(path: str, body: dict[str, Any]) -> None:
    for name in _faults(path, body):
        raise RejectedError(f"`{name}` is not as it can be.", name)
    if body["model"] != MODEL:
        raise RejectedError("There is no such model.", "model", 404, "model_not_found")


def _messages(body: dict[str, Any]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RejectedError("It is a list that is not empty.", "messages")
    texts = []
    for place, message in enumerate(messages):
        if message.get("role") not in {"system", "developer", "user", "assistant"}:
            raise RejectedError("This is no role.", f"messages[{place}].role")
        content = message["content"]
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if part["type"] != "text":
                raise RejectedError(f"{part['type']!r} is not served.", f"messages[{place}].content[{number}]")
        texts.append(content if isinstance(content, str) else "".join(part["text"] for part in content))
    return "\n".join(texts)


def _greedy(prompt: str) -> Iterator[bytes]:
    if "🙂" in prompt:
        smile = "🙂".encode()
        return itertools.cycle([smile[:2], smile[2:], b"!"])
    if prompt.endswith("Say hi."):
        return iter([b"Hi", b" there", b"!"])
    if "Welcome all guests" in prompt:
        return iter([b"Be", b" welcome", b",", b" all", b" of", b" you", b"."])
    if "Repeat the word yes" in prompt:
        return itertools.repeat(b" yes")
    if "Count" in prompt or prompt[:1].isdigit():
        return (f"{number} ".encode() for number in itertools.count(1 + len(prompt) % 7))
    return (f" {_WORDS[(len(prompt) * place) % 10]}{place}".encode() for place in itertools.count(1))


def _sampled(seed: int) -> Iterator[bytes]:
    dice = random.Random(seed)
    return (f" {dice.choice(_WORDS)}{dice.randrange(100)}".encode() for _ in itertools.count())


def _tokens(body: dict[str, Any], prompt: str, index: int) -> Iterator[bytes]:
    if body.get("response_format", {}).get("type") == "json_object":
        return iter([b'{"a"', b": 1", b"}"])
    if body.get("response_format", {}).get("type") == "json_schema" or _calls(body):
        return iter([b'{"city": ', b'"Ulaan', b'baatar"}'])
    if body.get("logit_bias", {}).get("1000", 0) == 100:
        return itertools.repeat(b"()")
    if body.get("temperature", 1) > 0 and body.get("top_p", 1) > 0.01:
        return _sampled(body.get("seed", random.getrandbits(32)) + index)
    if body.get("frequency_penalty", 0) > 1:
        return itertools.cycle([b" yes", b" no", b" so"])
    return _greedy(prompt)


def _calls(body: dict[str, Any]) -> bool:
    return body.get("tool_choice") == "required" or isinstance(body.get("tool_choice"), dict)


@dataclass
class _Choice:
    tokens: list[bytes]
    text: str
    finish: str
    pieces: list[str]


def _choose(body: dict[str, Any], prompt: str, index: int) -> _Choice:
    limit = body.get("max_completion_tokens", body.get("max_tokens", 64))
    tokens = list(itertools.islice(_tokens(body, prompt, index), limit))
    finish = "length" if len(tokens) == limit else "stop"
    text = b"".join(tokens).decode(errors="ignore")
    given = body.get("stop", [])
    stops = [given] if isinstance(given, str) else given
    found = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    if found:
        text, finish = text[: min(found)], "stop"
        while len(b"".join(tokens[:-1]).decode(errors="ignore")) > len(text) + 1:
            tokens.pop()
    ends = [len(b"".join(tokens[: place + 1]).decode(errors="ignore")) for place in range(len(tokens))]
    pieces = [text[begin:end] for begin, end in itertools.pairwise([0, *ends])]
    return _Choice(tokens, text, finish, pieces)


def _value(token: bytes, rank: int = 0) -> float:
    return -0.9 - 1.5 * rank - len(token) / 100


def _entry(token: bytes, count: int) -> dict[str, Any]:
    names = [token, *(f"alt{rank}".encode() for rank in range(1, _ALTERNATIVES + 1))][:count]
    all_of_it = [
        {"token": name.decode(errors="replace"), "logprob": _value(token, rank), "bytes": list(name)}
        for rank, name in enumerate([token, *names[1:]])
    ]
    return {**all_of_it[0], "top_logprobs": all_of_it[:count]}


def _generate(path: str, body: dict[str, Any], owner: HonestServer) -> Reply:
    _validate(path, body)
    chat = path == "/v1/chat/completions"
    if not chat and path != "/v1/completions":
        raise RejectedError("Nothing is there.", None, 404, "unknown_url")
    given = _messages(body) if chat else body["prompt"]
    prompts = given if isinstance(given, list) else [given]
    # Template and words: so many tokens has a prompt.
    counted = sum(3 + len(prompt.split()) for prompt in prompts)
    if counted > CONTEXT:
        raise RejectedError("The prompt is too long.", "messages", code="context_length_exceeded")
    choices = [_choose(body, prompt, index) for prompt in prompts for index in range(body.get("n", 1))]
    made = sum(len(choice.tokens) for choice in choices)
    usage = {"prompt_tokens": counted, "completion_tokens": made, "total_tokens": counted + made}
    kind = "chat.completion" if chat else "text_completion"
    head = {"id": f"id-{next(owner.ids)}", "object": kind, "created": 1700000000, "model": MODEL}
    if body.get("stream"):
        return Reply(events=_events(body, head, choices, usage, chat=chat))
    shown = [
        (_chat_choice if chat else _text_choice)(body, index, choice, given) for index, choice in enumerate(choices)
    ]
    return Reply(json={**head, "choices": shown, "usage": usage})


def _chat_choice(body: dict[str, Any], index: int, choice: _Choice, given: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text}
    if _calls(body):
        call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": choice.text}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    entries = [_entry(token, body.get("top_logprobs", 0)) for token in choice.tokens] if body.get("logprobs") else None
    return {
        "index": index, "message": message, "finish_reason": choice.finish,
        "logprobs": None if entries is None else {"content": entries},
    }  # fmt: skip


def _text_choice(body: dict[str, Any], index: int, choice: _Choice, given: Any) -> dict[str, Any]:
    logprobs = None
    if "logprobs" in body:
        offsets = [0, *itertools.accumulate(map(len, choice.pieces))][:-1]
        values = [_value(token) for token in choice.tokens]
        logprobs = {"tokens": choice.pieces, "token_logprobs": values, "text_offset": offsets, "top_logprobs": None}
    text = f"{given}{choice.text}" if body.get("echo") else choice.text
    return {"index": index, "text": text, "finish_reason": choice.finish, "logprobs": logprobs}


def _events(
    body: dict[str, Any], head: dict[str, Any], choices: list[_Choice], usage: dict[str, int], *, chat: bool
) -> list[Any]:
    head = {**head, "object": "chat.completion.chunk"} if chat else head
    asked = body.get("stream_options", {}).get("include_usage")
    events: list[Any] = []

    def add(index: int, delta: dict[str, Any], finish: str | None = None, entries: Any = None) -> None:
        part = {"delta": delta} if chat else {"text": delta.get("content", "")}
        logprobs = None if entries is None else {"content": entries}
        choice = {"index": index, **part, "finish_reason": finish, "logprobs": logprobs}
        events.append({**head, "choices": [choice], **({"usage": None} if asked else {})})

    for index, choice in enumerate(choices):
        if chat:
            add(index, {"role": "assistant", "content": ""})
        for token, piece in zip(choice.tokens, choice.pieces, strict=True):
            entries = [_entry(token, body.get("top_logprobs", 0))] if body.get("logprobs") else None
            call = {"index": 0, "function": {"arguments": piece}}
            add(index, {"tool_calls": [call]} if _calls(body) else {"content": piece}, None, entries)
        if _calls(body):
            events[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] = "look_up"
        add(index, {}, choice.finish)
    if asked:
        events.append({**head, "choices": [], "usage": usage})
    return [*events, "[DONE]"]
