"""The time for which a prompt of 100,000 tokens blocks the event loop, and so the tokens of others."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from gateway.text.tokens import Tokenizer

from .client import call
from .processes import ROOT, BenchmarkError, Child, SyntheticTriton, free_port
from .relay import Tell
from .subjects import Subject, settings_file, tokenizer_folder, transports, write_repository

_TOKENS = 100_000
_WORDS = ("The", "quick", "brown", "fox,", "jumps", "over\n", "lazy", "dogs;", "naïve", "42")
_IDLE_S = 2.0


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Measure the loop's lag while idle, and at each of ``rounds`` long prompts as text and as ids."""
    text = _text()
    requests = {
        "chat, text": (
            "/v1/chat/completions",
            {"model": "bench", "max_tokens": 1, "messages": [{"role": "user", "content": text}]},
        ),
        "completions, text": ("/v1/completions", {"model": "bench", "max_tokens": 1, "prompt": text}),
        "completions, ids": ("/v1/completions", {"model": "bench", "max_tokens": 1, "prompt": [1000] * _TOKENS}),
    }
    rows = []
    for transport in transports()[1]:
        subject = Subject("gateway", "tokens", transport)
        with SyntheticTriton(write_repository()) as triton, probed(subject, triton) as child:
            _ask(child, *requests["chat, text"])
            lag(child)
            time.sleep(_IDLE_S)
            rows.append({"transport": transport, "what": "idle", "worst_ms": lag(child)})
            for what, (path, request) in requests.items():
                rows.append({"transport": transport, "what": what, **_rounds(child, rounds, path, request)})
    for row in rows:
        tell(str(row))
    return {"prompt_tokens": _TOKENS, "rows": rows}


def _rounds(child: Child, rounds: int, path: str, request: dict[str, Any]) -> dict[str, Any]:
    lags, seconds, tokens = [], [], 0
    for _ in range(rounds):
        begun = time.perf_counter()
        tokens = _ask(child, path, request)
        seconds.append(time.perf_counter() - begun)
        lags.append(lag(child))
    return {
        "prompt_tokens": tokens,
        "worst_ms": max(lags),
        "median_ms": round(statistics.median(lags), 2),
        "answer_s": round(statistics.median(seconds), 2),
    }


def _text() -> str:
    """A text of about 100,000 tokens."""
    tokenizer = Tokenizer.from_folder(tokenizer_folder())
    part = " ".join(_WORDS[index * index % len(_WORDS)] for index in range(1000))
    return " ".join([part] * max(1, _TOKENS // len(tokenizer.encode(part))))


def probed(subject: Subject, triton: SyntheticTriton, **settings: Any) -> Child:
    """Start a gateway with a clock in its event loop; arguments as of ``subjects.settings_file``."""
    port = free_port()
    file = settings_file(subject, triton, port, label="lag", **settings)
    child = Child(file.stem, [sys.executable, "-m", "benchmarks.harness.lag_probe", file], port, cwd=ROOT)
    try:
        child.wait_http("/health/ready")
    except BenchmarkError:
        child.stop()
        raise
    return child


def lag(child: Child) -> float:
    """The longest time that its loop was late since the last question, in milliseconds."""
    return float(json.loads(call(child, "GET", "/lag"))["worst_ms"])


def _ask(child: Child, path: str, request: dict[str, Any]) -> int:
    return int(json.loads(call(child, "POST", path, json.dumps(request).encode()))["usage"]["prompt_tokens"])
