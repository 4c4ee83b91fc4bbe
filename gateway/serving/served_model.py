"""A served model: its engine, its metrics, and the queue of its requests."""

from __future__ import annotations

import asyncio
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.generation import Capability, EngineError, EngineFeatures
from gateway.generation.health import EngineHealth
from gateway.serving.admission.admission import Admission
from gateway.serving.admission.shares import SharedLines
from gateway.serving.backend import Backend
from gateway.serving.capabilities import queues
from gateway.settings import ConfigError, ModelSettings, Task, TimeoutSettings
from gateway.telemetry.metrics import Metrics, ModelMetrics, ModelSnapshot
from gateway.telemetry.slim_page import ModelQueue
from gateway.text.families.family_choice import FamilyChoice
from gateway.text.tokens.token_cache import TokenCache

EngineLimit = Callable[[Sequence[str], str], int | None]
"""Returns how many requests an engine, by its name in Triton, runs at a time on some endpoints; None: unknown."""


def unknown_limit(endpoints: Sequence[str], model: str) -> int | None:
    """Return no limit."""
    del endpoints, model
    return None


@dataclass(frozen=True, slots=True)
class ModelContext:
    """The parts that all models of a gateway share.

    Attributes:
        timeouts: deadlines of requests.
        metrics: the application's metrics.
        relay: whether tokens of plain streams skip the layers (``gateway.generation.relay``).
        shares: what all worker processes know of callers.
        engine_limit: tells how many requests engines run at a time.
        token_cache: of prompts; None: nothing is stored.
    """

    timeouts: TimeoutSettings
    metrics: Metrics
    relay: bool = True
    shares: SharedLines = field(default_factory=SharedLines)
    engine_limit: EngineLimit = unknown_limit
    token_cache: TokenCache | None = None


class ServedModel(ABC):
    """A model under its name for clients, of any task.

    Attributes:
        settings: its settings.
        name: the id that clients send.
        task: its task.
        queues: whether requests may have to wait for their turn.
        backend: its supervised engine.
        created: Unix time at which this gateway began to serve it.
        metrics: its counters.
        admission: decides which of its requests run and which wait.
    """

    def __init__(
        self,
        settings: ModelSettings,
        backend: Backend,
        key: str,
        context: ModelContext,
    ) -> None:
        """Prepare a model; ``start`` loads it.

        Args:
            settings: of the model.
            backend: what keeps its engine reachable; not started.
            key: where the model stands in the settings, for messages.
            context: what it shares with the others.
        """
        self._limit_of_engines = context.engine_limit
        self.settings = settings
        self.name = settings.name
        self.task: Task = settings.task
        self.queues = queues(settings)
        self.backend = backend
        self.created = int(time.time())
        self.metrics = context.metrics.for_model(settings.name)
        own_limit = self._engine_limit if settings.triton.metrics_url is not None else None
        self.admission = Admission(settings.name, settings.admission, context.shares, own_limit)
        rejected = self.metrics.rejected
        self.admission.rejected = lambda reason: rejected[reason].inc()
        self._key = key
        self._timeouts = context.timeouts
        self._features: EngineFeatures | None = None
        self._capabilities: Mapping[str, Capability] = {}
        self._losses: Mapping[str, str] = {}
        self._problem: ConfigError | None = None
        self._discovered_once = asyncio.Event()

    @property
    def features(self) -> EngineFeatures | None:
        """The features of the last discovery, also while the engine is unreachable; None before."""
        return self._features

    @property
    def max_seq_len(self) -> int | None:
        """The most tokens of a request, prompt and answer together; None before it is known."""
        return None

    @property
    def tokenizer_folder(self) -> Path | None:
        """The folder of the tokenizer; None before it is known, and without a tokenizer."""
        return None

    @property
    def family_choice(self) -> FamilyChoice | None:
        """The model family and how certain it is; None before it is known."""
        return None

    @property
    def template_renders(self) -> bool | None:
        """Whether the chat template renders a user message; None before it is known."""
        return None

    @property
    def capabilities(self) -> Mapping[str, Capability]:
        """The capability for each request parameter, as of the last discovery; empty before the first."""
        return self._capabilities

    @property
    def losses(self) -> Mapping[str, str]:
        """Features that answers lose, as of the last discovery; see ``EngineFeatures.losses``."""
        return self._losses

    @abstractmethod
    def check_ready(self) -> None:
        """Check that requests can be prepared.

        Raises:
            EngineError: as the backend's ``engine`` while it is unreachable or loading.
        """

    def refusal(self) -> str | None:
        """The error message for clients while requests cannot be served, without addresses; None when they can be."""
        try:
            self.check_ready()
        except EngineError as error:
            return error.message
        return None

    def unready(self) -> str | None:
        """The fault in one sentence for operators while requests cannot be served; None when they can be."""
        condition = self.backend.condition
        return None if condition.ready else condition.reason

    def now(self) -> ModelSnapshot:
        """The endpoints and the queue at this moment."""
        totals = self.admission.totals()
        return ModelSnapshot(self.backend.endpoints, totals.running, totals.waiting, totals.limit, self.task)

    def queue(self) -> ModelQueue:
        """The queue at this moment."""
        return ModelQueue(*self.admission.running_and_waiting(), adapter=self.settings.lora is not None)

    async def start(self) -> None:
        """Load what the settings name, supervise the engine, and take missing values from a ready engine.

        Raises:
            ConfigError: when the settings are wrong, or a running Triton does not say what they leave out.
        """
        self._loop = asyncio.get_running_loop()
        self.backend.on_discovered = self._discovered
        self.backend.watch(functools.partial(_watch, self.metrics))
        complete = await self._load()
        await self.backend.start()
        if not complete:
            # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
            waiting = asyncio.create_task(self._discovered_once.wait())
            try:
                await asyncio.wait((waiting,), timeout=self._timeouts.discovery_s)
            finally:
                waiting.cancel()
            if self._problem is not None:
                raise self._problem

    @abstractmethod
    async def _load(self) -> bool:
        """Load what the settings give; returns whether nothing is left to Triton's own configuration.

        Raises:
            ConfigError: when the settings are wrong.
        """

    async def close(self) -> None:
        """End the supervision of the engine, and drop references to this model."""
        self.admission.close()
        await self.backend.close()
        self.backend.on_discovered = None

    @abstractmethod
    def abort(self, error: EngineError) -> None:
        """End all running requests with an error."""

    def _engine_limit(self) -> int | None:
        """The most concurrent generations of the engines, by their metrics; None where the metrics lack it."""
        triton = self.settings.triton
        if self._features is None:
            return None
        endpoints = [each.address for each in self.backend.endpoints if each.condition.ready]
        return self._limit_of_engines(endpoints or [triton.url or ""], self._features.model)

    def _discovered(self, features: EngineFeatures) -> None:
        """Fit the model to an engine that is about to serve; called in any thread, because it may read files."""
        try:
            self._fit(features)
        finally:
            self._loop.call_soon_threadsafe(self._discovered_once.set)

    def _fit(self, features: EngineFeatures) -> None:
        try:
            self._check_engine(features)
        except ConfigError as error:
            self._problem = error
            raise ValueError(str(error)) from None
        self._problem = None
        self._features = features
        self._adopt(features)

    @abstractmethod
    def _check_engine(self, features: EngineFeatures) -> None:
        """Load what depends on an engine.

        Raises:
            ConfigError: when it cannot be served as configured.
        """

    @abstractmethod
    def _adopt(self, features: EngineFeatures) -> None:
        """Serve with an engine that was found to fit."""


def _watch(metrics: ModelMetrics, health: EngineHealth) -> None:
    health.responses = metrics.inter_token.count
