"""A client of the endurance run, a process of its own: ``python -m tests.faults.endurance_client``, JSON as input.

It asks at random, notes what came of each request, and tells it as one line of JSON.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.doubles.paced.server import text_of
from tests.faults.stack import MODEL, Outcome, ask

CHAT = "/v1/chat/completions"
_HUNG_S = 60.0
_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 2**31, 2**63, 2**64, 10**30, 1e308, 1e-320, "", "a", "\x00", "ü", "\ud800",
    "<|im_end|>", "x" * 5000, [], {}, [[]], [None], {"": None}, {"type": "text"}, {"role": "user"}, [1, 2, 3],
)  # fmt: skip
_FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True}}
_MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What now?"}]},
    {"role": "assistant", "content": "abc", "tool_calls": None},
    {"role": "user", "content": "Go on."},
]
_BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    (CHAT, {"messages": _MESSAGES, "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["zz"]}),
    (CHAT, {"messages": _MESSAGES, "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}, "n": 2}),
    (CHAT, {"messages": _MESSAGES, "max_tokens": 3, "tools": [{"type": "function", "function": _FUNCTION}]}),
    (CHAT, {"messages": _MESSAGES, "max_tokens": 3, "response_format": _SCHEMA, "logit_bias": {"5": 1}}),
    ("/v1/completions", {"prompt": ["one", "two"], "max_tokens": 3, "echo": False, "logprobs": None, "n": 1}),
    ("/v1/responses", {"input": [{"role": "user", "content": "Hi"}], "max_output_tokens": 16, "store": False}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "system": "Be brief."}),
)


@dataclass
class Tally:
    """What came of the requests.

    Attributes:
        asked: by kind.
        statuses: of HTTP, by kind.
        wrong: what must not be, with as much as it takes to find it.
    """

    asked: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, kind: str, status: int, wrong: str | None) -> None:
        """Count a request."""
        self.asked[kind] += 1
        self.statuses[f"{kind} {status}"] += 1
        if wrong is not None:
            self.wrong.append(f"{kind}: {wrong}")


def mutated(draw: random.Random) -> tuple[str, bytes]:
    """A path, and a body that was valid before it was changed at random."""
    path, body = draw.choice(_BODIES)
    changed = json.loads(json.dumps({"model": MODEL, **body}))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        _change(changed, draw)
    raw = json.dumps(changed, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    if draw.random() < 0.3:
        raw = _bytewise(bytearray(raw), draw)
    return path, raw


def _change(body: dict[str, Any], draw: random.Random) -> None:
    """Replace, take away, double or add something somewhere in it."""
    places: list[tuple[Any, Any]] = []
    todo: list[Any] = [body]
    while todo:
        each = todo.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each))
        places += [(each, key) for key in keys]
        todo += [each[key] for key in keys if isinstance(each[key], dict | list)]
    if not places:
        return
    container, key = draw.choice(places)
    way = draw.randrange(5)
    if way == 0:
        del container[key]
    elif way == 1 and isinstance(container, list):
        container.append(container[key])
    elif way == 2 and isinstance(container, dict):
        container[draw.choice(("n", "stop", "unknown", "stream", "logprobs", "top_k", "tools", "metadata"))] = (
            copy.deepcopy(draw.choice(_ODD))
        )
    else:
        container[key] = copy.deepcopy(draw.choice(_ODD))


def _bytewise(raw: bytearray, draw: random.Random) -> bytes:
    place = draw.randrange(len(raw))
    way = draw.randrange(4)
    if way == 0:
        raw[place] = draw.randrange(256)
    elif way == 1:
        del raw[place : place + draw.randrange(1, 9)]
    elif way == 2:
        raw[place:place] = draw.randbytes(draw.randrange(1, 9))
    else:
        del raw[place:]
    return bytes(raw)


class Client:
    """Asks until it has asked what it should, and the time is over.

    Args:
        seed: of the chances.
        key: of the API.
        tally: for what comes of it.
    """

    def __init__(self, http: httpx.AsyncClient, seed: int, tally: Tally) -> None:
        self._http = http
        self._draw = random.Random(seed)
        self._tally = tally

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[tuple[int, str | None]]]]:
        """What it can ask; each gives the status of HTTP and what is wrong."""
        return {
            "stream": self._stream,
            "answer": self._answer,
            "cancel": self._cancel,
            "fuzz": self._fuzz,
            "spoiled": self._spoiled,
        }

    async def ask(self, kind: str) -> None:
        """Ask one, and note what came of it."""
        try:
            status, wrong = await asyncio.wait_for(self.kinds[kind](), _HUNG_S)
        except asyncio.TimeoutError:
            status, wrong = 0, "did not end"
        self._tally.note(kind, status, wrong)

    async def _stream(self) -> tuple[int, str | None]:
        count = self._draw.randrange(1, 60)
        seen = await ask(self._http, count)
        well = seen.whole and not seen.wrong and len(seen.text) == count and seen.error is None
        return seen.status, None if well else f"{count} tokens: {seen}"

    async def _answer(self) -> tuple[int, str | None]:
        count = self._draw.randrange(1, 60)
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "?"}], "max_tokens": count}
        try:
            answer = await self._http.post(CHAT, json=asked)
        except httpx.TransportError as error:
            return 0, repr(error)
        if answer.status_code != 200:
            return answer.status_code, answer.text
        said = answer.json()
        well = said["choices"][0]["message"]["content"] == text_of(count)
        well &= said["usage"]["completion_tokens"] == count
        return 200, None if well else f"{count} tokens: {answer.text}"

    async def _cancel(self) -> tuple[int, str | None]:
        seen = Outcome()
        asking = asyncio.ensure_future(ask(self._http, 400, seen))
        await asyncio.wait((asking,), timeout=self._draw.random() * 0.4)
        asking.cancel()
        await asyncio.wait((asking,))
        return seen.status, str(seen) if seen.wrong or seen.error is not None else None

    async def _fuzz(self) -> tuple[int, str | None]:
        path, raw = mutated(self._draw)
        try:
            answer = await self._http.post(path, content=raw, headers={"content-type": "application/json"})
        except httpx.TransportError as error:
            return 0, f"{error!r} of {raw[:3000]!r}"
        wrong = None
        # The double has no log-probs, and the gateway says so: that is no fault of it.
        truthful = "invalid_engine_output" in answer.text and b"log" in raw
        if (answer.status_code >= 500 and not truthful) or not _has_form(answer, path):
            wrong = f"{path} {raw[:3000]!r}: {answer.status_code} {answer.text[:1000]}"
        return answer.status_code, wrong

    async def _spoiled(self) -> tuple[int, str | None]:
        count = self._draw.randrange(1, 60)
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "?"}], "max_tokens": count}
        asked["stream"] = self._draw.random() < 0.7
        try:
            answer = await self._http.post(CHAT, json=asked)
        except httpx.TransportError as error:
            return 0, repr(error)
        well = _has_form(answer, CHAT) and "Traceback" not in answer.text
        return answer.status_code, None if well else f"{answer.status_code} {answer.text[:3000]}"


def _has_form(answer: httpx.Response, path: str) -> bool:
    """Whether it is an error in the API's form, an answer, or a stream with an end."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        last = [line for line in answer.text.splitlines() if line.startswith("data: ")][-1]
        return '"error"' in last or last == "data: [DONE]" or '"type":"response.' in last or "message_stop" in last
    said = answer.json()
    if answer.status_code == 200:
        return isinstance(said, dict) and "error" not in {key for key, value in said.items() if value is not None}
    error = said["error"]
    if path == "/v1/messages":
        return bool(said["type"] == "error" and error["message"] and error["type"])
    return bool(error["message"]) and {"message", "type", "param", "code"} <= error.keys()


async def run(given: dict[str, Any]) -> Tally:
    """Ask as many as are given of each kind, mixed, and go on with streams and answers while there is time."""
    tally = Tally()
    draw = random.Random(given["seed"])
    todo = [kind for kind, count in given["counts"].items() for _ in range(count)]
    draw.shuffle(todo)
    ends = time.monotonic() + given["seconds"]
    headers = {"authorization": f"Bearer {given['key']}"}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=given["at_once"])

    async def work(number: int) -> None:
        client = Client(http, given["seed"] * 1000 + number, tally)
        while len(tally.wrong) < 20 and (todo or time.monotonic() < ends):
            await client.ask(todo.pop() if todo else draw.choice(given["further"]))
            await asyncio.sleep(given["rest_s"])

    async with httpx.AsyncClient(
        base_url=given["url"], headers=headers, limits=limits, timeout=2 * _HUNG_S, verify=False
    ) as http:
        await asyncio.gather(*(work(number) for number in range(given["at_once"])))
    return tally


def main() -> None:
    """Read what to ask from standard input, ask it, and tell what came of it."""
    tally = asyncio.run(run(json.load(sys.stdin)))
    told = {"asked": tally.asked, "statuses": tally.statuses, "wrong": tally.wrong}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
