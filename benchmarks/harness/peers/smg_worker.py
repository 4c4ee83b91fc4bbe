"""A synthetic TensorRT-LLM behind SMG: the gRPC service of ``trtllm-serve --grpc``, without inference.

``python -m benchmarks.harness.peers.smg_worker PORT MODEL`` in SMG's environment, which has the messages.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from smg_grpc_proto import trtllm_service_pb2 as messages
from smg_grpc_proto import trtllm_service_pb2_grpc as service

from .pace import Pace, token_id

_CONTEXT = 131072


class Engine(service.TrtllmServiceServicer):  # type: ignore[misc]  # not installed where mypy runs
    """Answers every request with the tokens that it asks for.

    Args:
        model: its name.
        pace: of the tokens.
    """

    def __init__(self, model: str, pace: Pace) -> None:
        self._model = model
        self._pace = pace

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002 - gRPC's names
        """One chunk for each token, then the whole answer."""
        prompt = len(request.tokenized.input_token_ids)
        ids: list[int] = []
        async for index in self._pace.count(request.max_tokens):
            ids.append(token_id(index))
            counts = {"prompt_tokens": prompt, "completion_tokens": len(ids)}
            chunk = messages.GenerateStreamChunk(token_ids=ids[-1:], **counts)
            yield messages.GenerateResponse(request_id=request.request_id, chunk=chunk)
        whole = messages.GenerateComplete(output_token_ids=ids, finish_reason="length", **counts)
        yield messages.GenerateResponse(request_id=request.request_id, complete=whole)

    async def HealthCheck(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Always well."""
        return messages.HealthCheckResponse(status="OK")

    async def Abort(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Nothing runs that could be ended: its stream is cancelled."""
        return messages.AbortResponse(success=True)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """The model, whose tokenizer SMG has by its own settings."""
        return messages.GetModelInfoResponse(
            model_id=self._model, max_input_len=_CONTEXT, max_seq_len=_CONTEXT, max_batch_size=1024, vocab_size=49152
        )

    async def GetServerInfo(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """A server of one device."""
        return messages.GetServerInfoResponse(version="1.2.1", backend="pytorch", tensor_parallel_size=1, world_size=1)


async def main(port: int, model: str) -> None:
    """Serve for ever."""
    pace = Pace()
    pace.follow_input()
    server = grpc.aio.server()
    service.add_TrtllmServiceServicer_to_server(Engine(model, pace), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
