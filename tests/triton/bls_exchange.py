"""Asking the engine of a scripted Triton once, behind this project's BLS model or upstream's."""

from __future__ import annotations

from typing import Any, cast

from scripted_triton import ScriptedTriton, drop_tensors, inputs_of, play, stock_config, stock_configs

from gateway.generation.engine import EngineChunk, TokenGenerator
from gateway.generation.request import GenerationRequest
from gateway.triton import EngineOptions, discovery
from gateway.triton.connection import Connection
from gateway.triton.grpcio import GrpcioTransport, open_channel
from gateway.triton.triton_client import TritonClient

BLS = "tensorrt_llm_bls"
OWN = ("max_concurrent_requests", "engine_silence_seconds")
EXTENSIONS = ("output_ids", "sequence_length", "finish_reason", "num_cached_tokens")


def bls_configs(draft: str | None = "guess", **parameters: str) -> dict[str, Any]:
    """This project's repository with a draft model."""
    configs: dict[str, Any] = stock_configs() | {BLS: stock_config(BLS)}
    if draft is not None:
        configs[draft] = stock_config("tensorrt_llm")
        configs[draft].name = draft
        configs[BLS].parameters["tensorrt_llm_draft_model_name"].string_value = draft
    for name, value in parameters.items():
        configs[BLS].parameters[name].string_value = value
    return configs


def upstream_configs(**parameters: str) -> dict[str, Any]:
    """As upstream's templates come, which answer with text alone."""
    configs = bls_configs(**parameters)
    for name in OWN:
        del configs[BLS].parameters[name]
    for name in ("tensorrt_llm", "guess"):
        del configs[name].parameters["engine"]
        del configs[name].parameters["guided_decoding_guide_types"]
    drop_tensors(configs[BLS], EXTENSIONS)
    return configs


async def find(
    server: ScriptedTriton, channel: Any, model: str, path: Any = "auto", options: EngineOptions | None = None
) -> TokenGenerator:
    connection = Connection(GrpcioTransport(channel))
    found = await discovery.discover(TritonClient(channel), connection, model, path, options or EngineOptions())
    await connection.background.drain(5)
    return cast("TokenGenerator", found.engine)


async def exchange(
    configs: dict[str, Any],
    request: GenerationRequest,
    *answer: Any,
    model: str = BLS,
    options: EngineOptions | None = None,
) -> tuple[dict[str, Any], list[EngineChunk], TokenGenerator]:
    """Ask once; returns the tensors that were sent, the chunks that came, and the engine."""
    script = (lambda *_: play(*answer)) if answer else None
    async with ScriptedTriton(script, configs) as server, open_channel(server.url) as channel:
        engine = await find(server, channel, model, options=options)
        server.requests.clear()
        chunks = [chunk async for chunk in engine.generate(request)]
        return inputs_of(server.requests[0]), chunks, engine
