"""Programs that embed without a gateway: CPU per request of tritonclient, or of LiteLLM's provider for Triton.

    python embedding_client.py tritonclient 127.0.0.1:19001 400
    python embedding_client.py litellm http://127.0.0.1:19002/v2/models/embedding/infer 400

Eight requests at a time, of one short text each; prints microseconds of CPU per request.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import resource
import sys
from collections.abc import Awaitable, Callable
from typing import Any

_AT_A_TIME = 8
_TEXT = "What is the capital of France?"
_Embed = Callable[[], Awaitable[object]]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _tritonclient(address: str, count: int) -> float:
    numpy, triton = importlib.import_module("numpy"), importlib.import_module("tritonclient.grpc.aio")
    client = triton.InferenceServerClient(address)

    async def embed() -> str:
        text = triton.InferInput("text", [1, 1], "BYTES")
        text.set_data_from_numpy(numpy.array([[_TEXT.encode()]], object))
        wanted = [triton.InferRequestedOutput("embedding"), triton.InferRequestedOutput("token_count")]
        result = await client.infer("embedding", [text], outputs=wanted)
        return base64.b64encode(result.as_numpy("embedding")[0]).decode()

    return await _run(embed, count)


async def _litellm(url: str, count: int) -> float:
    library: Any = importlib.import_module("litellm")

    async def embed() -> object:
        answer = await library.aembedding(model="triton/embedding", input=[_TEXT], api_base=url)
        return answer.data[0]["embedding"]

    return await _run(embed, count)


async def _run(embed: _Embed, count: int) -> float:
    async def one_after_the_other(number: int) -> None:
        for _ in range(number):
            if not await embed():
                raise SystemExit("no vector")

    await one_after_the_other(_AT_A_TIME)  # a warm-up
    begun, each = _cpu_s(), count // _AT_A_TIME
    await asyncio.gather(*(one_after_the_other(each) for _ in range(_AT_A_TIME)))
    return (_cpu_s() - begun) * 1e6 / (each * _AT_A_TIME)


if __name__ == "__main__":
    program, address, number = sys.argv[1:]
    programs = {"tritonclient": _tritonclient, "litellm": _litellm}
    print(f"{asyncio.run(programs[program](address, int(number))):.1f}")
