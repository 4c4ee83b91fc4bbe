"""All served models, by name and alias, replaced while requests run."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.generation import EngineError
from gateway.generation.health import EngineCondition
from gateway.serving.adapter_files import ADAPTER_FILES
from gateway.serving.admission.shares import SharedLines
from gateway.serving.backend import BackendFactory
from gateway.serving.encoder_model import EncoderModel
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.mirror.copies import RequestCopies
from gateway.serving.served_model import EngineLimit, ModelContext, ServedModel, unknown_limit
from gateway.settings import ModelSettings, Settings
from gateway.telemetry.memory import give_back
from gateway.telemetry.metrics import Metrics
from gateway.text.tokens import VOCABULARY_FILES
from gateway.text.tokens.token_cache import TokenCache

_log = logging.getLogger(__name__)
_READY_POLL_S = 0.05
_COLLECT_S = 0.5  # until the next look whether a request runs


@dataclass(frozen=True, slots=True)
class ModelChanges:
    """The changes of a replacement, as names of models.

    Attributes:
        added: new models.
        changed: restarted models.
        removed: models that are not served any more.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A served model and what it was made of."""

    model: ServedModel
    made_of: ModelFingerprint


class Registry:
    """The served models in the order of the settings.

    Attributes:
        copies: copies requests for mirrors; None without mirrors.
        running: a future of each running request, done at its end: its models are not closed before.
    """

    def __init__(
        self,
        settings: Settings,
        backend_factory: BackendFactory,
        metrics: Metrics,
        shares: SharedLines | None = None,
        engine_limit: EngineLimit = unknown_limit,
        token_cache: TokenCache | None = None,
    ) -> None:
        """Make all models; ``start`` loads them.

        Args:
            settings: of the gateway.
            backend_factory: makes the supervised engine of one model.
            metrics: the application's metrics.
            shares: what all worker processes know of callers; None: this process is alone.
            engine_limit: tells how many requests engines run at a time.
            token_cache: of prompts; None: nothing is stored.
        """
        self.copies: RequestCopies | None = None
        self.token_cache = token_cache
        self._timeouts = settings.timeouts
        self._context = ModelContext(
            settings.timeouts, metrics, settings.server.relay, shares or SharedLines(), engine_limit, token_cache
        )
        self._backend_factory = backend_factory
        self._entries = {
            model.name: _Entry(self._make(model, index), fingerprint(model))
            for index, model in enumerate(settings.models)
        }
        self._names = _names(self._entries)
        self._splits: Mapping[str, Mapping[str, float]] = settings.splits
        self.running: set[asyncio.Future[None]] = set()
        self._retiring: dict[asyncio.Task[None], list[ServedModel]] = {}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter([entry.model for entry in self._entries.values()])

    def get(self, name: str, conversation: str | None = None) -> ServedModel | None:
        """Find the model with a name or alias; None without one.

        Args:
            name: name, alias or split; of a split one of the ready models is chosen by weight.
            conversation: id of the conversation, whose requests go to the same model of a split.
        """
        model = self._names.get(name)
        if model is None and name in self._splits:
            return self._share(name, conversation)
        return model

    def _share(self, name: str, conversation: str | None) -> ServedModel:
        weights = {self._names[model]: weight for model, weight in self._splits[name].items() if weight}
        ready = {model: weight for model, weight in weights.items() if model.unready() is None} or weights
        place = random.random() if conversation is None else _place(name, conversation)  # noqa: S311 - no secret
        place *= sum(ready.values())
        chosen = next(iter(ready))
        for chosen, weight in ready.items():  # noqa: B007 - the last one where rounding leaves a rest
            place -= weight
            if place < 0:
                break
        return chosen

    def names(self) -> list[tuple[str, ServedModel]]:
        """List each id under which clients reach a model, a model's name before its aliases.

        A split stands with its model of the largest weight.
        """
        splits = [(name, self._names[max(weights, key=weights.__getitem__)]) for name, weights in self._splits.items()]
        return [*self._names.items(), *splits]

    def split(self, name: str) -> Mapping[str, float] | None:
        """Return the weights of the models of a split; None where the name is not a split."""
        return self._splits.get(name)

    def readiness(self) -> dict[str, EngineCondition]:
        """The condition of each model."""
        return {model.name: model.backend.condition for model in self}

    async def start(self) -> None:
        """Start all models side by side.

        Raises:
            ConfigError: when one cannot be served as configured.
        """
        await _start_all(list(self))

    async def replace(
        self, models: tuple[ModelSettings, ...], splits: Mapping[str, Mapping[str, float]] | None = None
    ) -> ModelChanges:
        """Serve other models from now on.

        A model whose settings and files are the same stays the same object. New models are started first, and waited
        for as long as a start may wait for Triton. Then all change together. Models that are not served any more are
        closed when the requests that run now have ended.

        Args:
            models: settings of all models to serve.
            splits: as of the settings.

        Raises:
            ConfigError: when one cannot be served as configured; nothing has changed then.
        """
        before = self._entries
        entries = {model.name: self._entry(model, index) for index, model in enumerate(models)}
        fresh = [entry.model for name, entry in entries.items() if entry is not before.get(name)]
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._release)
            for model in fresh:
                undo.push_async_callback(model.close)
            await _start_all(fresh)
            await self._wait_ready(fresh)
            undo.pop_all()
        retired = [entry.model for name, entry in before.items() if entry is not entries.get(name)]
        for model in retired:
            if model.name in entries:
                model.admission.successor = entries[model.name].model.admission
        self._names, self._entries, self._splits = _names(entries), entries, splits or {}
        if retired:
            task = asyncio.create_task(self._retire(retired))
            self._retiring[task] = retired
            task.add_done_callback(lambda done: self._retiring.pop(done, None))
        return ModelChanges(
            added=tuple(name for name in entries if name not in before),
            changed=tuple(model.name for model in fresh if model.name in before),
            removed=tuple(name for name in before if name not in entries),
        )

    async def wait_ready(self, since: float | None = None) -> None:
        """Wait for the engines of all models, for the time that a start may wait for Triton.

        Args:
            since: the event loop's time from which that counts; None for now.
        """
        await self._wait_ready(list(self), since)

    def abort(self, error: EngineError) -> None:
        """End all running requests with an error, also those of retired models."""
        for model in [*self, *(model for models in self._retiring.values() for model in models)]:
            model.abort(error)

    async def close(self) -> None:
        """Close all models, also retired ones."""
        retiring, self._retiring = self._retiring, {}
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        retired = [model for models in retiring.values() for model in models]
        await asyncio.gather(*(model.close() for model in (*self, *retired)))

    def _make(self, model: ModelSettings, index: int) -> ServedModel:
        kind = GeneratorModel if model.task == "generate" else EncoderModel
        return kind(model, self._backend_factory(model), f"models[{index}]", self._context)

    def _entry(self, model: ModelSettings, index: int) -> _Entry:
        """The entry as it is when the model is the same, else one with a new model."""
        entry = self._entries.get(model.name)
        made_of = fingerprint(model)  # before the files are read: a change meanwhile is seen the next time
        if entry is not None and entry.made_of == made_of:
            return entry
        return _Entry(self._make(model, index), made_of)

    async def _wait_ready(self, models: list[ServedModel], since: float | None = None) -> None:
        """Wait for engines, so that no request meets a model that is still being discovered."""
        loop = asyncio.get_running_loop()
        end = (loop.time() if since is None else since) + self._timeouts.discovery_s
        # Polled: backends have no event for it, and a reload may be a moment late.
        while any(model.unready() for model in models) and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_READY_POLL_S)
        for model in models:
            reason = model.unready()
            if reason is not None:
                _log.warning("model %s is not ready yet: %s", model.name, reason, extra={"event": "model_not_ready"})

    async def _retire(self, models: list[ServedModel]) -> None:
        """Close models when nothing that runs now can still use them; at the latest when no answer may run on."""
        running = set(self.running)
        if running:
            await asyncio.wait(running, timeout=self._timeouts.total_s)
        for model in models:
            await model.close()
            _log.info("model %s: the previous version is closed", model.name, extra={"event": "model_closed"})
        del model, models[:]
        await self._release()

    async def _release(self) -> None:
        """Free what closed models leave: mostly the memory of tokenizers, which the C library would keep."""
        await asyncio.to_thread(give_back)
        self._collect()

    def _collect(self) -> None:
        """Free the cycles that connections leave, once no request runs: the collector goes through all they hold."""
        if self.running:
            asyncio.get_running_loop().call_later(_COLLECT_S, self._collect)
        else:
            gc.collect()


def _place(name: str, conversation: str) -> float:
    """A number from 0 to 1, the same for the same conversation."""
    digest = hashlib.blake2b(f"{name}\n{conversation}".encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def _names(entries: dict[str, _Entry]) -> dict[str, ServedModel]:
    return {
        name: entry.model for entry in entries.values() for name in (entry.model.name, *entry.model.settings.aliases)
    }


async def _start_all(models: list[ServedModel]) -> None:
    """Start them side by side; all have ended their start when the first error is raised."""
    outcomes = await asyncio.gather(*(model.start() for model in models), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


_TOKENIZER_FILES = (
    "tokenizer.json",
    *VOCABULARY_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "config.json",
    "chat_template.jinja",
    "chat_template.json",
)


@dataclass(frozen=True, slots=True)
class ModelFingerprint:
    """The identity of a model's settings and files; models with equal ones need no restart.

    Attributes:
        settings: settings of the model.
        files: path, time and size of each file that it reads.
    """

    settings: ModelSettings
    files: tuple[tuple[str, int, int], ...]


def fingerprint(settings: ModelSettings) -> ModelFingerprint:
    """Make the fingerprint of a model, with the files that the settings name."""
    paths = [settings.template] if settings.template is not None else []
    paths += settings.prompt_tables.values()
    if settings.lora is not None and settings.lora.folder is not None:
        paths += [settings.lora.folder / name for name in ADAPTER_FILES]
    if settings.tokenizer is not None:
        paths += [settings.tokenizer / name for name in _TOKENIZER_FILES]
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return ModelFingerprint(settings, tuple(found))
