"""A worker of Dynamo without inference, for its front end: token ids at a pace, over its own TCP plane.

``python -m benchmarks.harness.peers.dynamo_worker NAME MODEL_FOLDER`` in Dynamo's environment; says "registered" when
its model is known.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvloop
from dynamo.llm import ModelInput, ModelType, WorkerType, register_model
from dynamo.runtime import DistributedRuntime

from .pace import Pace, token_id

_DEFAULT_TOKENS = 16


async def main(name: str, folder: str) -> None:
    """Serve for ever."""
    pace = Pace()
    pace.follow_input()

    async def generate(request: Any, context: Any = None) -> AsyncIterator[Any]:  # noqa: ARG001 - Dynamo passes it
        count = request["stop_conditions"].get("max_tokens") or _DEFAULT_TOKENS
        async for index in pace.count(count):
            answer: dict[str, Any] = {"token_ids": [token_id(index)]}
            yield {**answer, "finish_reason": "length"} if index == count - 1 else answer

    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")
    endpoint = runtime.endpoint("bench.worker.generate")
    await register_model(ModelInput.Tokens, ModelType.Chat, endpoint, folder, name, worker_type=WorkerType.Aggregated)
    print("registered", flush=True)
    await endpoint.serve_endpoint(generate)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
