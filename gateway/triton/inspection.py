"""Inspects a Triton model without serving it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from gateway.generation.engine import EngineError, EngineFeatures, ErrorKind
from gateway.settings import EnginePath
from gateway.triton.abilities import EngineOptions
from gateway.triton.access import PLAIN, TritonAccess
from gateway.triton.connection import BackgroundTasks, Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.discovery import PROBE_TIMEOUT_S, discover
from gateway.triton.grpcio import GrpcioTransport, open_channel
from gateway.triton.model_view import ModelView
from gateway.triton.tls_trouble import tls_trouble
from gateway.triton.triton_client import TritonClient

__all__ = ["DiscoveryError", "EngineOptions", "inspect_model"]

_DRAIN_S = 2.0


_WELL = (ErrorKind.QUEUE_FULL, ErrorKind.INVALID_REQUEST, ErrorKind.CONTEXT_LENGTH)  # of an engine that works


class NoTokenError(EngineError):
    """The engine did not answer a probe with a token."""


async def inspect_model(
    url: str, model: str, path: EnginePath, options: EngineOptions, access: TritonAccess = PLAIN
) -> EngineFeatures:
    """Discover a model once, as a backend does.

    Args:
        url: Triton's gRPC address, ``host:port``.
        model: the configured Triton model, usually the ensemble.
        path: how to reach its engine; ``auto`` sends a one-token probe.
        options: the operator's settings of the engine.
        access: access to the Triton.

    Raises:
        DiscoveryError: the model cannot be served like this.
        NoTokenError: its engine gave no token.
        EngineError: Triton did not answer, or the model is not loaded.
    """
    background = BackgroundTasks()
    channel = open_channel(url, access)
    try:
        connection = Connection(GrpcioTransport(channel), background)
        discovered = await discover(TritonClient(channel), connection, model, path, options)
        failure = await discovered.probe(PROBE_TIMEOUT_S)
        if failure is not None and failure.kind not in _WELL:
            raise NoTokenError(failure.kind, f"Its engine returned no token: {failure.message}", failure.detail)
    except EngineError as error:
        if error.kind is ErrorKind.UNAVAILABLE and (trouble := await tls_trouble(url, access)):
            raise EngineError(error.kind, trouble, error.detail) from None
        raise
    else:
        return discovered.engine.features
    finally:
        await background.drain(_DRAIN_S)
        await channel.close()


async def read_configurations(url: str, models: Iterable[str]) -> dict[str, Any]:
    """Read the ModelConfig of each loaded model.

    Args:
        url: ``host:port`` of Triton's gRPC endpoint.
        models: names; models that are not loaded are absent from the result.

    Raises:
        EngineError: Triton did not answer.
    """
    channel = open_channel(url)
    try:
        client = TritonClient(channel)
        return {name: await client.model_config(name) for name in models if await client.model_ready(name)}
    finally:
        await channel.close()


def read_model_file(path: Path) -> ModelView:
    """Read a ``config.pbtxt``.

    Raises:
        OSError: the file cannot be read.
        text_format.ParseError: the file is not a ModelConfig.
    """
    config = model_config_pb2.ModelConfig()
    text_format.Parse(path.read_text(encoding="utf-8"), config)
    return ModelView.of(config)
