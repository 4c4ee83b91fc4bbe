"""A served model: its engine, its tokenizer and templates, and the way from an ask to a running generation."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread

from gateway.config import ConfigError, ModelSettings, TimeoutSettings
from gateway.generation import (
    EngineError,
    EngineFeatures,
    ErrorKind,
    GenerationRequest,
    Prompt,
    SequenceAssembler,
)
from gateway.serving.ask import ChatAsk
from gateway.serving.backend import Backend
from gateway.serving.errors import RefusedError
from gateway.serving.loading import ModelParts, load_parts, needs_discovery
from gateway.serving.running import Deadlines, RunningGeneration
from gateway.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)
_LONG_PROMPT = 4096  # characters; rendering and tokenizing more than this would hold up other requests' tokens


class ServedModel:
    """One model as clients know it.

    Attributes:
        settings: its settings.
        backend: its supervised engine.
        created: Unix time at which this gateway began to serve it.
        metrics: its counters.
    """

    def __init__(
        self, settings: ModelSettings, backend: Backend, *, key: str, timeouts: TimeoutSettings, metrics: Metrics
    ) -> None:
        """Prepare a model; ``start`` loads it.

        Args:
            settings: of the model.
            backend: what keeps its engine reachable; not started.
            key: where the model stands in the settings, for messages.
            timeouts: deadlines of its generations.
            metrics: the application's metrics.
        """
        self.settings = settings
        self.backend = backend
        self.created = int(time.time())
        self.metrics = metrics.for_model(settings.name)
        self._key = key
        self._timeouts = timeouts
        self._deadlines = Deadlines(timeouts.first_token_s, timeouts.total_s)
        self._parts: ModelParts | None = None
        self._features: EngineFeatures | None = None
        self._problem: ConfigError | None = None
        self._discovered_once = asyncio.Event()

    @property
    def name(self) -> str:
        """The id that clients send."""
        return self.settings.name

    @property
    def features(self) -> EngineFeatures | None:
        """What was discovered last, also while the engine is away; None before the first discovery."""
        return self._features

    @property
    def max_seq_len(self) -> int | None:
        """Prompt plus generated tokens at most; None before it is known."""
        return self._parts.max_seq_len if self._parts else None

    def unready(self) -> str | None:
        """Why requests cannot be served now, in one sentence; None when they can."""
        status = self.backend.status
        return None if status.ready else status.reason

    async def start(self) -> None:
        """Load what the settings give, begin to supervise the engine, and take the rest from it if it is there.

        Raises:
            ConfigError: when the settings are wrong, or a running Triton does not say what they leave out.
        """
        self.backend.on_discovered = self._discovered
        if not needs_discovery(self.settings):
            self._parts = await anyio.to_thread.run_sync(load_parts, self.settings, None, self._key)
        await self.backend.start()
        if needs_discovery(self.settings):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._discovered_once.wait(), self._timeouts.discovery_s)
            if self._problem is not None:
                raise self._problem

    async def close(self) -> None:
        """End the supervision of its engine."""
        await self.backend.close()

    async def generate(self, ask: ChatAsk, request_id: str, arrived: float) -> RunningGeneration:
        """Build the prompt and prepare a generation, which begins when its context is entered.

        Args:
            ask: what is wanted.
            request_id: prefix of the engine's request id.
            arrived: ``time.perf_counter()`` at the arrival of the request.

        Raises:
            EngineError: UNAVAILABLE when the model is not ready, CONTEXT_LENGTH when the prompt is too long.
            RefusedError: when the engine cannot give what is asked.
            TemplateError: when the chat template refuses the messages.
        """
        engine = self.backend.engine
        parts = self._parts
        if parts is None:
            raise EngineError(ErrorKind.UNAVAILABLE, "The model is still being loaded.")
        features = engine.features
        _check_ask(ask, features, self.settings)
        build = functools.partial(parts.prompts.build, _messages(ask, parts))
        prompt = await anyio.to_thread.run_sync(build) if ask.size > _LONG_PROMPT else build()
        if prompt.escaped and not features.prompt_ids:
            raise RefusedError(
                "A message contains the text of a control token, which cannot be escaped for this model because its"
                " prompts travel as text; the operator may allow it with escape_special_tokens: false.",
                "messages",
            )
        request = GenerationRequest(
            id=f"{request_id}-{uuid.uuid4().hex}",
            prompt=prompt,
            max_tokens=_room(prompt, ask.max_tokens, parts.max_seq_len),
            sampling=ask.sampling,
            end_ids=parts.end_ids,
            end_texts=parts.end_texts,
            stop=ask.stop,
            logprobs=ask.logprobs,
            top_logprobs=ask.top_logprobs,
        )
        return RunningGeneration(
            engine,
            request,
            SequenceAssembler(request, parts.tokenizer),
            deadlines=self._deadlines,
            metrics=self.metrics,
            arrived=arrived,
        )

    def _discovered(self, features: EngineFeatures) -> None:
        """Fit the parts to an engine that is about to serve; reads files only when the tokenizer's folder is new."""
        try:
            self._parts = load_parts(self.settings, features, self._key, self._parts)
        except ConfigError as error:
            self._problem = error
            raise ValueError(str(error)) from None
        finally:
            self._discovered_once.set()
        self._problem = None
        self._features = features
        _log.info(
            "model %s is served by the %s path: %s", self.name, features.path, features.reason,
            extra={"max_seq_len": self._parts.max_seq_len, "tokenizer": str(self._parts.tokenizer_source)},
        )  # fmt: skip


def _messages(ask: ChatAsk, parts: ModelParts) -> Sequence[Mapping[str, Any]]:
    if parts.knows_developer:
        return ask.messages
    return [{**message, "role": "system"} if message["role"] == "developer" else message for message in ask.messages]


def _check_ask(ask: ChatAsk, features: EngineFeatures, settings: ModelSettings) -> None:
    if len(ask.stop) > settings.max_stops:
        message = f"At most {settings.max_stops} stop strings are supported, but {len(ask.stop)} were given."
        raise RefusedError(message, "stop", "array_above_max_length")
    if ask.logprobs and not features.logprobs:
        raise RefusedError("This model's engine gives no log-probabilities.", "logprobs", "unsupported_parameter")
    if ask.top_logprobs > features.max_top_logprobs:
        most = features.max_top_logprobs
        what = f"at most {most}" if most else "no"
        raise RefusedError(
            f"This model's engine gives {what} alternatives per token.", "top_logprobs", "unsupported_parameter"
        )


def _room(prompt: Prompt, wanted: int | None, max_seq_len: int) -> int:
    """Tokens that may be generated: what is wanted, within what the context leaves."""
    length = len(prompt.ids)
    room = max_seq_len - length
    if room < 1:
        raise EngineError(
            ErrorKind.CONTEXT_LENGTH,
            f"This model's maximum context length is {max_seq_len} tokens, but the messages have {length} tokens and an"
            " answer needs at least one more; shorten the messages.",
        )
    return room if wanted is None else min(wanted, room)
