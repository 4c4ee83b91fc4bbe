"""A gateway process over paced Tritons, and clients that note what became of each request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.app.scripted import ByteIds, write_tokenizer
from tests.doubles.paced.server import LETTERS, PacedServer, text_of
from tests.stack import GatewayProcess

MODEL = "paced"


@dataclass
class Outcome:
    """What a client saw of one streamed request.

    Attributes:
        status: of HTTP; 0 while there is none.
        text: of the answer so far.
        finish: the finish reason, if one came.
        error: the error of the answer or the event that ended it.
        begun: when it was sent; ``first`` and ``ended``: when its first text and its end came.
        whole: whether the stream came to its end.
    """

    status: int = 0
    text: str = ""
    finish: str | None = None
    error: dict[str, Any] | None = None
    begun: float = field(default_factory=time.monotonic)
    first: float | None = None
    ended: float = 0.0
    whole: bool = False

    @property
    def wrong(self) -> bool:
        """Whether a token is wrong, lost or doubled."""
        return self.text != text_of(len(self.text))

    @property
    def took(self) -> float:
        """Seconds from the request to its end."""
        return self.ended - self.begun


async def ask(client: httpx.AsyncClient, tokens: int, outcome: Outcome | None = None, **more: Any) -> Outcome:
    """Ask for an answer of so many tokens, as a stream."""
    seen = outcome or Outcome()
    headers = more.pop("headers", {})
    body = {
        "model": MODEL, "messages": [{"role": "user", "content": more.pop("question", "?")}],
        "max_tokens": tokens, "stream": True, **more,
    }  # fmt: skip
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            seen.status = answer.status_code
            if answer.status_code != 200:
                seen.error = json.loads(await answer.aread())["error"]
            else:
                await _read(answer, seen)
    except httpx.TransportError as error:
        seen.error = {"transport": repr(error)}
    seen.ended = time.monotonic()
    return seen


async def _read(answer: httpx.Response, seen: Outcome) -> None:
    async for line in answer.aiter_lines():
        if line == "data: [DONE]":
            seen.whole = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            seen.error = event.get("error", seen.error)
            for choice in event.get("choices", ()):
                if text := choice["delta"].get("content"):
                    seen.first = seen.first or time.monotonic()
                    seen.text += text
                seen.finish = choice["finish_reason"] or seen.finish


class Stack:
    """Paced Tritons and a gateway before them.

    Attributes:
        tritons: the servers.
        gateway: its process.
    """

    def __init__(self, tritons: Sequence[PacedServer], gateway: GatewayProcess) -> None:
        self.tritons = tritons
        self.gateway = gateway

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that opens as many connections as it has requests."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=self.gateway.url, limits=limits, timeout=120, verify=False) as client:
            yield client

    async def states(self) -> list[str]:
        """The state of each endpoint, as the gateway tells."""
        async with self.client() as client:
            described = (await client.get(f"/v1/models/{MODEL}")).json()
        return [each["state"] for each in described["gateway"]["endpoints"]]

    async def until(self, true: Callable[[], Any], seconds: float = 30) -> float:
        """Wait until something is so; returns the seconds that it took."""
        begun = time.monotonic()
        while True:
            found = true()
            if found if not asyncio.iscoroutine(found) else await found:
                return time.monotonic() - begun
            assert time.monotonic() - begun < seconds, f"not after {seconds} s"
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def stack(
    folder: Path,
    count: int = 2,
    *,
    workers: int = 1,
    addresses: Callable[[Sequence[PacedServer]], list[str]] | None = None,
    model: dict[str, Any] | None = None,
    balance: dict[str, Any] | None = None,
    triton: dict[str, Any] | None = None,
    paced: dict[str, Any] | None = None,
    **sections: Any,
) -> Iterator[Stack]:
    """Run it.

    Args:
        folder: for its files.
        count: Tritons.
        workers: of the gateway.
        addresses: of the endpoints, where they are not those of the Tritons.
        model: further settings of the model.
        balance: of its endpoints.
        triton: further settings of them.
        paced: slots and times of the Tritons.
        sections: of the settings.
    """
    tokenizer = write_tokenizer(folder / "tokenizer")
    letters = ByteIds(tokenizer).of(LETTERS)
    with contextlib.ExitStack() as held:
        tritons = [
            held.enter_context(PacedServer(letters, log=folder / f"triton-{index}.log", **(paced or {})))
            for index in range(count)
        ]
        endpoints = addresses(tritons) if addresses else [each.url for each in tritons]
        balanced = {"endpoints": endpoints, "balance": {"slow_start_s": 0, **(balance or {})}, **(triton or {})}
        settings = {
            "server": {"reload_s": 0},
            "models": [
                {
                    "name": MODEL, "tokenizer": str(tokenizer), "max_seq_len": 8192, "path": "tokens",
                    "triton": balanced,
                    **(model or {}),
                }
            ],
            **sections,
        }  # fmt: skip
        file = folder / "gateway.yaml"
        file.write_text(yaml.safe_dump(settings))
        environment = {"GATEWAY_CONFIG": str(file)} | ({"GATEWAY_WORKERS": str(workers)} if workers > 1 else {})
        gateway = held.enter_context(GatewayProcess(folder / "gateway.log", **environment))
        while addresses is None and gateway.metric("gateway_endpoint_ready") < count:  # the gateway is ready with one
            time.sleep(0.05)
        yield Stack(tritons, gateway)
