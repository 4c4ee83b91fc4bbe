"""Which engine a configured model gives: reads its configuration, chooses the path, says why (contract section 0.3)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from gateway.generation.engine import Engine, EngineError, ErrorKind
from gateway.generation.request import GenerationRequest, Prompt, Sampling
from gateway.triton.abilities import EngineOptions
from gateway.triton.assembly import Models, Path, check, ensemble_engine, tokens_engine
from gateway.triton.client import TritonClient
from gateway.triton.dialects.connection import Connection
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import is_engine, read_pipeline

PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Discovered:
    """The outcome of a discovery.

    Attributes:
        engine: what to generate with.
        models: every model that must be ready for it.
    """

    engine: Engine
    models: tuple[str, ...]


_NO_OPTIONS = EngineOptions()


async def discover(
    client: TritonClient, connection: Connection, model: str, path: Path, options: EngineOptions = _NO_OPTIONS
) -> Discovered:
    """Find out how to call ``model`` and make its engine.

    Raises:
        DiscoveryError: it cannot be served as configured.
        EngineError: Triton did not answer, or a model is not loaded.
    """
    models = await read_models(client, model)
    check(models, path)
    if models.pipeline is None:
        return Discovered(tokens_engine(connection, models, f"{model!r} is an engine model", options), models.names)
    if path == "tokens":
        return Discovered(tokens_engine(connection, models, "path: tokens is configured", options), models.names)
    if path == "ensemble":
        return Discovered(ensemble_engine(connection, models, "path: ensemble is configured", options), models.names)
    if models.pipeline.deviation is not None:
        reason = f"the ensemble is not stock: {models.pipeline.deviation}"
        return Discovered(ensemble_engine(connection, models, reason, options), models.names)
    step = models.engine.name if models.engine else ""
    engine = tokens_engine(
        connection, models, f"the ensemble's steps are stock and {step!r} answers token ids", options
    )
    failure = await probe(tokens_engine(replace(connection, timeout=PROBE_TIMEOUT_S), models, "probe"))
    if failure is not None:
        reason = f"the ensemble's engine step {step!r} did not answer a one-token probe ({failure})"
        return Discovered(ensemble_engine(connection, models, reason, options), models.names)
    return Discovered(engine, models.names)


async def read_models(client: TritonClient, model: str) -> Models:
    """Read the configuration of a model and of its steps."""
    entry = await _read_model(client, model)
    if not entry.steps:
        return Models(entry, entry if is_engine(entry) else None, None, None, (model,))
    pipeline = read_pipeline(entry)
    steps = sorted({step.model for step in entry.steps})
    views = {name: await _read_model(client, name) for name in steps}
    engine = views[pipeline.engine.model] if pipeline.engine else None
    preprocessing = views[pipeline.text.model] if pipeline.text else None
    return Models(entry, engine, preprocessing, pipeline, (model, *steps))


async def _read_model(client: TritonClient, model: str) -> ModelView:
    if not await client.model_ready(model):
        raise EngineError(
            ErrorKind.UNAVAILABLE, f"Model {model!r} is unknown to Triton, failed to load, or is still loading."
        )
    return ModelView.of(await client.model_config(model))


async def probe(engine: Engine) -> str | None:
    """Generate one token.

    Returns:
        None when the engine answered, a full queue included; else what went wrong, in a few words.

    Raises:
        EngineError: Triton is not available, which says nothing of the engine.
    """
    request = GenerationRequest(
        id=f"probe-{uuid.uuid4()}", prompt=Prompt(text="", ids=(0,)), max_tokens=1, sampling=Sampling(temperature=0.0)
    )
    try:
        async for _ in engine.generate(request):
            pass
    except EngineError as error:
        if error.kind is ErrorKind.UNAVAILABLE:
            raise
        return None if error.kind is ErrorKind.QUEUE_FULL else error.message.rstrip(".")
    return None
