"""The gateways that are asked: processes of their own, told by a settings file, before a `RecordedTriton`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.recorded.engine import PLAIN_TEMPLATE, RecordedTriton, write_tokenizer
from tests.stack import TRANSPORT, GatewayProcess

KEY = "sk-recorded"
ORIGIN = "https://app.example"


@dataclass
class Gateways:
    """Two gateways and their Triton.

    Attributes:
        open: a client of the one with many models, which asks for no key.
        guarded: a client of the one with keys, CORS and small limits.
        triton: before which both stand.
        folder: of everything that they read.
    """

    open: httpx.Client
    guarded: httpx.Client
    triton: RecordedTriton
    folder: Path


@contextlib.contextmanager
def gateways(folder: Path) -> Iterator[Gateways]:
    """Start them, with their files in ``folder``."""
    (folder / "plain.jinja").write_text(PLAIN_TEMPLATE)
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(RecordedTriton(write_tokenizer(folder)))
        processes = [
            _process(folder, "open", _open(triton.url, folder)),
            _process(folder, "guarded", _guarded(triton.url)),
        ]
        for process in processes:
            stack.callback(process.stop)
            process.fork()
        # Each request has a connection of its own: a broken stream changes the next response on the same one.
        alone = httpx.Limits(max_keepalive_connections=0)
        clients = [stack.enter_context(httpx.Client(base_url=each.url, timeout=20, limits=alone)) for each in processes]
        for process, client, away in zip(processes, clients, (["away"], []), strict=True):
            _wait(process, client, away)
        triton.asked()
        yield Gateways(clients[0], clients[1], triton, folder)


def _wait(process: GatewayProcess, client: httpx.Client, away: list[str]) -> None:
    """Wait for all models but those that are never there."""
    deadline = time.monotonic() + 60
    states = None
    while time.monotonic() < deadline:
        if process.answers():
            states = client.get("/health/ready").json()["models"]
            if [name for name, state in states.items() if not state["ready"]] == away:
                return
        time.sleep(0.05)
    raise AssertionError(f"not ready: {states}\n{process.log.read_text()[-4000:]}")


def _process(folder: Path, name: str, settings: dict[str, Any]) -> GatewayProcess:
    return GatewayProcess(folder / f"{name}.log", settings)


def _model(name: str, url: str, triton_model: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "triton": {"url": url, "model": triton_model, "transport": os.environ.get(TRANSPORT, "grpcio")},
        "tokenizer": ".", "family": "hermes", **more,
    }  # fmt: skip


def _encoder(name: str, url: str, task: str, **more: Any) -> dict[str, Any]:
    return {"task": task, **_model(name, url, name, **more), "family": None}


def _open(url: str, folder: Path) -> dict[str, Any]:
    return {
        "server": {"page": False},  # whose bytes need no record
        "state": {"path": str(folder / "state.sqlite")},
        "timeouts": {"discovery_s": 1},
        "models": [
            _model("chat", url, "ensemble", aliases=["gpt-4o"]),
            _model(
                "reasoner", url, "tensorrt_llm", family="qwen3", reasoning_output="both", tool_call_streaming="eager"
            ),
            _model(
                "strict",
                url,
                "tensorrt_llm",
                policies={"impossible": "strict", "hints": "strict", "unknown": "strict"},
                max_tokens_policy="reject",
                max_stops=2,
                max_top_logprobs=2,
                allow_request_template=True,
                escape_special_tokens=False,
            ),
            _model(
                "lenient",
                url,
                "tensorrt_llm",
                policies={"impossible": "ignore", "hints": "ignore", "unknown": "ignore"},
                defaults={"temperature": 0.5, "top_p": 0.75, "top_k": 40, "max_tokens": 8},
            ),
            _model("warning", url, "bare", policies={"impossible": "warn"}),
            _model("words", url, "ensemble", path="ensemble"),
            _model("text", url, "text", path="ensemble"),
            _model("text-whole", url, "text", path="ensemble", text_streaming="whole"),
            _model("text-lossy", url, "text", path="ensemble", text_streaming="lossy"),
            _model("bare", url, "bare", family="plain", template="plain.jinja"),
            _model("validating", url, "bare", structured_output_without_guidance="validate"),
            _model("beams", url, "beams"),
            _encoder("vectors", url, "embed", max_seq_len=64, encoder={"dimensions": True}),
            _encoder("ranks", url, "rerank", encoder={"activation": "none"}),
            _encoder("classes", url, "classify", encoder={"labels": ["lively", "dull"]}),
            _model("away", f"127.0.0.1:{free_port()}", "ensemble", max_seq_len=64),
        ],
    }


def _guarded(url: str) -> dict[str, Any]:
    return {
        "server": {"api_keys": [KEY], "cors": {"origins": [ORIGIN]}},
        "limits": {"max_body_bytes": 1024},
        "state": {"store": "none", "keys": ["A" * 43 + "="]},
        "models": [_model("only", url, "tensorrt_llm")],
    }
