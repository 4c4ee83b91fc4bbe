"""Tokens per second of the embedded stack: one stream, then eight together, medians of interleaved rounds.

Against a stack that is already up (``make up`` in another terminal):

    .venv/bin/python benchmarks/embedded.py [--url http://127.0.0.1:9000] [--rounds 3] [--tokens 64]

It prints the time to first token and the tokens per second after it, and the ratio of eight streams to one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import dataclass

import httpx

PROMPT = "Write a long story about a lighthouse keeper and the sea."


@dataclass(frozen=True)
class Stream:
    """One stream: seconds to its first token, seconds in all, tokens."""

    first: float
    total: float
    tokens: int


async def one(client: httpx.AsyncClient, url: str, model: str, tokens: int, seed: int) -> Stream:
    """Stream one answer of ``tokens`` tokens and time it."""
    body = {
        "model": model, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": tokens,
        "seed": seed, "messages": [{"role": "user", "content": PROMPT}],
    }  # fmt: skip
    start = time.perf_counter()
    first = 0.0
    usage = 0
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content") and not first:
                first = time.perf_counter() - start
            if chunk.get("usage"):
                usage = chunk["usage"]["completion_tokens"]
    return Stream(first, time.perf_counter() - start, usage)


async def measure(url: str, rounds: int, tokens: int) -> None:
    """Interleave rounds of one and of eight streams and print the medians."""
    async with httpx.AsyncClient(timeout=600) as client:
        model = (await client.get(f"{url}/v1/models")).json()["data"][0]["id"]
        await one(client, url, model, 8, 0)
        speeds: dict[int, list[float]] = {1: [], 8: []}
        firsts: dict[int, list[float]] = {1: [], 8: []}
        for round_ in range(rounds):
            for width, speed in speeds.items():
                start = time.perf_counter()
                streams = await asyncio.gather(
                    *(one(client, url, model, tokens, 100 * round_ + i) for i in range(width))
                )
                elapsed = time.perf_counter() - start
                speed.append(sum(stream.tokens for stream in streams) / elapsed)
                firsts[width].append(statistics.median(stream.first for stream in streams))
    for width, speed in speeds.items():
        print(
            f"{width} streams: {statistics.median(speed):.1f} tokens/s, "
            f"first token {statistics.median(firsts[width]):.2f} s"
        )
    print(f"ratio 8/1: {statistics.median(speeds[8]) / statistics.median(speeds[1]):.2f}")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:9000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    asyncio.run(measure(args.url.rstrip("/"), args.rounds, args.tokens))


if __name__ == "__main__":
    main()
