"""A trace of one streamed chat of three tokens: how many calls, functions and files of the gateway it passes.

The engine follows a script, so that no Triton is needed and the package ``gateway/triton`` is left out. The request
comes over a real socket, through the real HTTP protocol. Earlier requests have warmed every cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import tokenizers
import uvicorn
import uvloop
from tokenizers import decoders, models, pre_tokenizers

from gateway.app import create_app, unread_answer
from gateway.generation import EngineChunk, EngineFeatures, GenerationRequest
from gateway.generation.health import READY, EngineHealth
from gateway.generation.route import RoutingHints, SingleRoute
from gateway.http.http_protocol import http_protocol
from gateway.settings import Settings

GATEWAY = Path(__file__).parents[1] / "gateway"
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
_WARMING = 5
_BODY = json.dumps(
    {
        "model": "traced",
        "stream": True,
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "Say abc."}],
    }
)


@dataclass
class Trace:
    """Calls of one request, in order.

    Attributes:
        calls: (file below ``gateway/``, name of the function) of each.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def functions(self) -> int:
        """The number of different functions."""
        return len(set(self.calls))

    @property
    def files(self) -> int:
        """The number of different files."""
        return len({file for file, _ in self.calls})

    @property
    def room_changes(self) -> int:
        """The number of calls into another folder below ``gateway/`` than the call before."""
        rooms = [file.split("/")[0] for file, _ in self.calls]
        return sum(first != second for first, second in itertools.pairwise(rooms))

    def on_event(self, frame: FrameType, event: str, _: Any) -> None:
        """Record an event of ``sys.setprofile``."""
        if event != "call":
            return
        path = frame.f_code.co_filename
        if path.startswith(f"{GATEWAY}/"):
            file = path[len(str(GATEWAY)) + 1 :]
            if not file.startswith("triton/"):
                self.calls.append((file, getattr(frame.f_code, "co_qualname", frame.f_code.co_name)))  # from 3.11


_FEATURES = EngineFeatures(
    path="tokens", reason="traced", model="tensorrt_llm", token_ids=True, prompt_ids=True, logprobs=True
)


@dataclass
class _Engine:
    """An engine that answers "abc", a token for each letter."""

    ids: list[int]
    features: EngineFeatures = _FEATURES

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        del request
        for index in self.ids:
            await asyncio.sleep(0)  # each token comes in its own turn of the loop, as from a server
            yield EngineChunk(ids=[index])
        yield EngineChunk(final=True)


@dataclass(frozen=True)
class _Status:
    ready: bool = True
    reason: str = "traced"


class _Backend:
    """A backend whose engine is always there."""

    status = _Status()
    condition = READY
    ready = True
    endpoints = ()

    def __init__(self, engine: _Engine) -> None:
        self.features = engine.features
        self.on_discovered: Any = None
        self._route = SingleRoute(engine, EngineHealth())

    def route(self, aim: RoutingHints) -> SingleRoute:
        del aim
        return self._route

    async def find(self, aim: RoutingHints) -> SingleRoute:
        return self.route(aim)

    def watch(self, watcher: Callable[[EngineHealth], None]) -> None:
        watcher(self._route.health)

    async def start(self) -> None:
        self.on_discovered(self.features)

    def check(self) -> None: ...

    async def close(self) -> None: ...


def _write_tokenizer(folder: Path) -> list[int]:
    """Write a byte-level tokenizer without merges; returns the ids of "abc"."""
    vocab = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _TEMPLATE, "eos_token": "<|im_end|>"}))
    return list(tokenizer.encode("abc").ids)


@contextlib.asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[int]:
    """The gateway on a loopback port."""
    model = {"name": "traced", "triton": {"url": "127.0.0.1:1"}, "max_seq_len": 256, "tokenizer": folder}
    backend = _Backend(_Engine(_write_tokenizer(folder)))
    app = create_app(Settings.model_validate({"models": [model]}), backend_factory=lambda _: backend)
    protocol = http_protocol(unread_answer)
    config = uvicorn.Config(app, port=0, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    async with app.router.lifespan_context(app):
        task = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            await task


def _ask(port: int, before: threading.Event | None = None) -> bytes:
    """Send the request on a connection of its own and read the answer; a traced one waits for ``before``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    if before is not None:
        before.wait()
    connection.request("POST", "/v1/chat/completions", _BODY, {"Content-Type": "application/json"})
    body = connection.getresponse().read()
    connection.close()
    return body


async def _traced(folder: Path) -> Trace:
    trace = Trace()
    async with _serving(folder) as port:
        for _ in range(_WARMING):
            await asyncio.to_thread(_ask, port)
        go = threading.Event()
        answer = asyncio.create_task(asyncio.to_thread(_ask, port, go))
        await asyncio.sleep(0.2)  # the connection exists: its cost is not part of the request
        sys.setprofile(trace.on_event)
        go.set()
        body = await answer
        sys.setprofile(None)
    if body.count(b'"content":') < 3 or b"[DONE]" not in body:
        raise RuntimeError(f"The answer is not the expected one: {body!r}")
    return trace


def trace_request() -> Trace:
    """Run a gateway in this process and trace one request."""
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(_traced(Path(folder)))
