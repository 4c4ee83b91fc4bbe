"""Finds the engine of a configured model: reads its configuration and chooses the dialect (wire contract 0.3)."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.generation.engine import DescribingEngine, Engine, EngineError, EngineFeatures, ErrorKind
from gateway.settings import EnginePath
from gateway.triton.abilities import NO_OPTIONS, EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import Dialect
from gateway.triton.dialects.registry import check
from gateway.triton.engine_probe import probe_request
from gateway.triton.engine_watch import Completed, Probe
from gateway.triton.missing_models import reject_missing
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, assemble, called_models
from gateway.triton.tokenized import tokenize_there
from gateway.triton.transport import InferCall, TransportError
from gateway.triton.triton_client import TritonClient

PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Discovery:
    """The outcome of a discovery.

    Attributes:
        engine: the engine.
        models: every model that must be ready for it.
        doubtful: whether the engine has failed a probe.
        probe: sends a probe to the engine; see ``gateway.triton.engine_watch.Probe``.
        completed: counts its completed requests, see there; None for decoupled models, whose backends may report a
            request before its responses.
    """

    engine: Engine
    models: tuple[str, ...]
    probe: Probe
    completed: Completed | None
    doubtful: bool = False


async def discover(
    client: TritonClient, connection: Connection, model: str, path: EnginePath, options: EngineOptions = NO_OPTIONS
) -> Discovery:
    """Find the dialect of a model and make its engine.

    Raises:
        DiscoveryError: the model cannot be served as configured.
        EngineError: Triton did not answer, or a model is not loaded.
    """
    models = await read_models(client, model)
    own = check(models, path, options.task)
    models = replace(models, tokenized=await tokenize_there(connection, models.preprocessing))
    dialect, reason = own.choose(models, path)
    probed = replace(connection, timeout=PROBE_TIMEOUT_S)
    doubtful = False
    if _is_probed(dialect, own, path):
        failure = await dialect.ask(dialect.make(probed, models, "probe"))
        if failure is not None and failure.kind is not ErrorKind.QUEUE_FULL:
            dialect, reason, doubtful = own, _unanswered(models, failure), True
    asked = dialect.make(probed, models, "probe", options)
    models = await dialect.learn(asked, lambda found: dialect.make(probed, found, "probe", options), models)

    async def again(timeout: float) -> EngineError | None:
        probed.timeout = timeout
        return await dialect.ask(asked)

    engine = dialect.make(connection, models, reason, options)
    decoupled = models.entry.decoupled or (models.engine is not None and models.engine.decoupled)
    completed = None if decoupled else functools.partial(client.completed, engine.features.model)
    return Discovery(engine, models.names, again, completed, doubtful)


def describe(models: Models, path: EnginePath, options: EngineOptions = NO_OPTIONS) -> EngineFeatures:
    """Describe by configurations alone how ``discover`` would serve a model whose engine responds.

    Raises:
        DiscoveryError: the model cannot be served like this.
    """
    own = check(models, path, options.task)
    dialect, reason = own.choose(models, path)
    models = dialect.assume(models)
    connection = Connection(_Nowhere())
    engine = dialect.make(connection, models, reason, options)
    if _is_probed(dialect, own, path) and isinstance(engine, DescribingEngine):
        try:
            engine.describe(probe_request())
        except EngineError as error:  # it lacks what the probe is made of
            engine = own.make(connection, models, _unanswered(models, error), options)
    features: EngineFeatures = engine.features
    return features


def _is_probed(dialect: Dialect[Any], own: Dialect[Any], path: EnginePath) -> bool:
    """Whether the engine step must answer a token before it is called past its ensemble."""
    return path == "auto" and dialect is not own


def _unanswered(models: Models, failure: EngineError) -> str:
    step = models.engine.name if models.engine else ""
    return f"the engine step {step!r} of the ensemble failed a one-token probe ({failure.message.rstrip('.')})"


class _Nowhere:
    """A transport for engines that are described, and never asked."""

    name = "nowhere"

    async def prepare(self) -> None: ...

    def infer(
        self, request: service_pb2.ModelInferRequest, *, timeout: float, traceparent: str | None = None
    ) -> InferCall:
        del request, timeout, traceparent
        raise TransportError("UNAVAILABLE", "an engine that is described has no server")

    async def close(self) -> None: ...


async def read_models(client: TritonClient, model: str) -> Models:
    """Read the configurations of a model and of the models that it calls."""
    entry = await _read_model(client, model)
    return assemble(entry, {name: await _read_model(client, name, entry) for name in called_models(entry)})


async def _read_model(client: TritonClient, model: str, caller: ModelView | None = None) -> ModelView:
    if not await client.model_ready(model):
        await reject_missing(client, model, caller)
    return ModelView.of(await client.model_config(model))
