"""Which engine a configured model gives: reads its configuration, chooses the path, says why (wire contract 0.3)."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.generation.engine import Engine, EngineError, EngineFeatures, ErrorKind
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.text.guides.guide import Guide
from gateway.text.prompt.prompt import Prompt
from gateway.triton.abilities import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.engine_factory import (
    ensemble_engine,
    llmapi_engine,
    plain_engine,
    tokens_engine,
    vllm_engine,
)
from gateway.triton.engine_watch import Probe
from gateway.triton.error_mapping import LLMAPI_WITH_ADAPTERS, NO_GUIDED_DECODING
from gateway.triton.guides import smallest_guide
from gateway.triton.missing_models import reject_missing
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, assemble, called_models
from gateway.triton.servable import DiscoveryError, EnginePath, broken_by_adapters, check
from gateway.triton.tokenized import tokenize_there
from gateway.triton.transport import InferCall, TransportError
from gateway.triton.triton_client import TritonClient
from gateway.triton.vllm_dialect import guide_fields

PROBE_TIMEOUT_S = 10.0

_Make = Callable[[Connection, Models, str, EngineOptions], Engine]


@dataclass(frozen=True, slots=True)
class Discovery:
    """The outcome of a discovery.

    Attributes:
        engine: what to generate with.
        models: every model that must be ready for it.
        doubtful: whether the engine failed where it was asked for a token.
        probe: asks the engine for one token; see ``gateway.triton.engine_watch.Probe``.
    """

    engine: Engine
    models: tuple[str, ...]
    probe: Probe
    doubtful: bool = False


_NO_OPTIONS = EngineOptions()


async def discover(
    client: TritonClient, connection: Connection, model: str, path: EnginePath, options: EngineOptions = _NO_OPTIONS
) -> Discovery:
    """Find out how to call ``model`` and make its engine.

    Raises:
        DiscoveryError: it cannot be served as configured.
        EngineError: Triton did not answer, or a model is not loaded.
    """
    models = await read_models(client, model)
    check(models, path)
    models = replace(models, tokenized=await tokenize_there(connection, models.preprocessing))
    make, reason, doubtful = await _choose(connection, models, path)
    own = replace(connection, timeout=PROBE_TIMEOUT_S)
    asked = make(own, models, "probe", options)
    if models.llmapi:
        await reject_broken(asked)
    if models.vllm:
        models = replace(
            models, guide_field=await find_guide_field(lambda found: make(own, found, "probe", options), models)
        )
    elif asked.features.guide_types and not await has_guided_decoder(asked):
        models = replace(models, guided=False)
    if (models.draft or asked.features.max_draft_tokens != 0) and not await takes_drafts(asked, models):
        models = replace(models, drafted=False)

    async def again(timeout: float) -> EngineError | None:
        own.timeout = timeout
        return await _ask(asked)

    return Discovery(make(connection, models, reason, options), models.names, again, doubtful)


def describe(models: Models, path: EnginePath, options: EngineOptions = _NO_OPTIONS) -> EngineFeatures:
    """Tell by configurations alone how a model would be served, as ``discover`` does where its engine answers.

    Raises:
        DiscoveryError: it cannot be served like this.
    """
    check(models, path)
    make, reason = _expect(models, path)
    if models.vllm:
        models = replace(models, guide_field=next(iter(guide_fields(models.entry)), None))
    connection = Connection(_Nowhere())
    if _is_probed(models, path, make):
        engine = tokens_engine(connection, models, reason, options)
        try:
            engine.describe(_probe_request())
        except EngineError as error:  # it lacks what the probe is made of
            make, reason = ensemble_engine, _unanswered(models, error.message.rstrip("."))
    return make(connection, models, reason, options).features


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


async def _choose(connection: Connection, models: Models, path: EnginePath) -> tuple[_Make, str, bool]:
    """How to make the engine, and why so; and whether the engine step failed where it was asked for a token."""
    make, reason = _expect(models, path)
    if _is_probed(models, path, make):
        failure = await probe(tokens_engine(replace(connection, timeout=PROBE_TIMEOUT_S), models, "probe"))
        if failure is not None:
            return ensemble_engine, _unanswered(models, failure), True
    return make, reason, False


def _is_probed(models: Models, path: EnginePath, make: _Make) -> bool:
    """Whether the engine step must answer a token before it is called past its ensemble."""
    return path == "auto" and models.pipeline is not None and make is tokens_engine


def _unanswered(models: Models, failure: str) -> str:
    step = models.engine.name if models.engine else ""
    return f"the engine step {step!r} of the ensemble failed a one-token probe ({failure})"


def _expect(models: Models, path: EnginePath) -> tuple[_Make, str]:
    """As above, if the engine answers."""
    if models.pipeline is None:
        return _single(models)
    if path == "tokens":
        return tokens_engine, "path: tokens is configured"
    if path == "ensemble":
        return ensemble_engine, "path: ensemble is configured"
    if models.pipeline.deviation is not None:
        return ensemble_engine, f"the ensemble is not the stock ensemble: {models.pipeline.deviation}"
    step = models.engine.name if models.engine else ""
    return tokens_engine, f"the ensemble has the stock steps, and {step!r} returns token ids"


def _single(models: Models) -> tuple[_Make, str]:
    """Choose the engine of an entry that is not an ensemble, with the reason."""
    if models.llmapi:
        return llmapi_engine, f"{models.entry.name!r} is a model of the LLM API"
    if models.vllm:
        return vllm_engine, f"{models.entry.name!r} is a model of the vLLM backend"
    if models.plain:
        return plain_engine, f"{models.entry.name!r} reads and returns text"
    if not models.bls:
        return tokens_engine, f"{models.entry.name!r} is an engine model"
    drafting = f" with the draft model {models.draft.name!r}" if models.draft else ""
    return ensemble_engine, f"{models.entry.name!r} is a BLS model{drafting}"


async def read_models(client: TritonClient, model: str) -> Models:
    """Read the configuration of a model and of those that it calls."""
    entry = await _read_model(client, model)
    return assemble(entry, {name: await _read_model(client, name, entry) for name in called_models(entry)})


async def _read_model(client: TritonClient, model: str, caller: ModelView | None = None) -> ModelView:
    if not await client.model_ready(model):
        await reject_missing(client, model, caller)
    return ModelView.of(await client.model_config(model))


async def probe(engine: Engine) -> str | None:
    """Generate one token.

    Returns:
        None when the engine answered, a full queue included; else what went wrong, in a few words.

    Raises:
        EngineError: Triton is not available, which says nothing of the engine.
    """
    error = await _ask(engine)
    return None if error is None or error.kind is ErrorKind.QUEUE_FULL else error.message.rstrip(".")


async def reject_broken(engine: Engine) -> None:
    """Generate one token with the LLM API's model, of which some settings make every request fail.

    Raises:
        DiscoveryError: it says that it has them. Any other failure says nothing of that.
        EngineError: Triton is not available.
    """
    error = await _ask(engine)
    if error is not None and error.message == LLMAPI_WITH_ADAPTERS:
        raise DiscoveryError(broken_by_adapters(engine.features.model))


async def has_guided_decoder(engine: Engine) -> bool:
    """Generate one token by a guide: a configuration names guides that the engine was not set up for at times.

    Returns:
        False where the engine says that it has no guided decoder. Any other failure says nothing of that.

    Raises:
        EngineError: Triton is not available.
    """
    error = await _ask(engine, guide=smallest_guide(engine.features.guide_types))
    return error is None or error.message != NO_GUIDED_DECODING


async def find_guide_field(make: Callable[[Models], Engine], models: Models) -> str | None:
    """Generate a token by a guide of each form that a vLLM backend may take: which one goes by its version.

    Returns:
        The sampling parameter that guides are sent as; None where it takes none. A failure that says nothing of that
        leaves it at the likeliest.

    Raises:
        EngineError: Triton is not available.
    """
    for field in guide_fields(models.entry):
        engine = make(replace(models, guide_field=field))
        error = await _ask(engine, guide=smallest_guide(engine.features.guide_types))
        if error is None or error.kind not in (ErrorKind.INVALID_REQUEST, ErrorKind.INTERNAL):
            return field
    return None


async def takes_drafts(engine: Engine, models: Models) -> bool:
    """Find out whether an engine takes drafts, by generating two tokens with a draft of one.

    An engine does not always take the drafts that its model declares.

    Returns:
        False where the engine rejects the draft. A full queue or a late answer does not count as a rejection.

    Raises:
        EngineError: Triton is not available.
    """
    error = await _ask(engine, max_tokens=2, **({"num_draft_tokens": 1} if models.draft else {"draft": (0,)}))
    return error is None or error.kind not in (ErrorKind.INVALID_REQUEST, ErrorKind.INTERNAL)


def _probe_request(guide: Guide | None = None, *, temperature: float = 0.0, **more: Any) -> GenerationRequest:
    return GenerationRequest(
        id=f"probe-{uuid.uuid4()}",
        prompt=Prompt(text="a", ids=(0,)),
        params=SamplingParams(temperature=temperature, guide=guide),
        **{"max_tokens": 1, **more},
    )


async def _ask(engine: Engine, guide: Guide | None = None, **more: Any) -> EngineError | None:
    features = engine.features
    temperature = features.capabilities.get("temperature")
    greedy = temperature is None or temperature.how != "impossible"
    request = _probe_request(guide, **more, temperature=0.0 if greedy else 1.0)
    try:
        async with contextlib.aclosing(engine.generate(request)) as chunks:
            async for chunk in chunks:
                if chunk.failure is not None:
                    return chunk.failure
                if features.path == "text":  # which need not heed the limit of one token
                    return None
    except EngineError as error:
        if error.kind is ErrorKind.UNAVAILABLE:
            raise
        return error
    return None
