"""An Engine that follows a script, its backend, and a tokenizer folder in which every byte is a token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from gateway.generation import Engine, EngineChunk, EngineError, EngineFeatures, ErrorKind, GenerationRequest
from gateway.generation.health import READY, EngineCondition, EngineHealth
from gateway.generation.relay.interface import Began, Take
from gateway.generation.route import EndpointStatus, RoutingHints, SingleRoute
from gateway.settings import Settings

MODEL = "scripted"
MAX_SEQ_LEN = 256
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.content == 'refuse' %}{{ raise_exception('These messages are refused.') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = EngineFeatures(
    path="tokens", reason="the steps are stock", model="tensorrt_llm", token_ids=True, prompt_ids=True, logprobs=True,
    max_top_logprobs=5,
)  # fmt: skip


def write_tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    """A byte-level tokenizer without merges: one token a byte, and the control tokens of ChatML."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|im_end|>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.token_to_id("<|im_end|>")}))
    return folder


class ByteIds:
    """Ids of that tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def of(self, text: str) -> list[int]:
        """One id for each byte of the text's UTF-8."""
        return list(self._tokenizer.encode(text).ids)


Step = EngineChunk | EngineError | asyncio.Event
Script = Callable[[GenerationRequest], list[Step]]


@dataclass
class ScriptedEngine:
    """Yields its script's chunks, raises its errors, waits for its events, and remembers who asked and who left.

    Attributes:
        script: what to do for a request.
        features: what it says of itself.
        requests: all requests so far.
        running: requests whose generator is open now.
        closed_early: ids of requests whose generator was closed before its end.
        asked: set by the first request.
        left: set when a generator was closed, by whatever end.
    """

    script: Script
    features: EngineFeatures = TOKENS
    requests: list[GenerationRequest] = field(default_factory=list)
    running: int = 0
    closed_early: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        self.requests.append(request)
        self.asked.set()
        self.running += 1
        done = False
        try:
            for step in self.script(request):
                if isinstance(step, EngineError):
                    done = True
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                else:
                    done = step.final
                    yield step
        finally:
            self.running -= 1
            if not done:
                self.closed_early.append(request.id)
            self.left.set()


@dataclass
class RelayingEngine(ScriptedEngine):
    """Offers each run of ids between two chunks to the relay, as an engine whose transport receives them.

    Attributes:
        relayed: how many ids were taken.
    """

    relayed: int = 0

    async def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        assert began is not None
        async with aclosing(self.generate(request)) as given:
            async for chunk in given:
                ids = list(chunk.ids)
                if not chunk.final and take is not None:
                    await asyncio.sleep(0)  # for the answering task to wait
                    await asyncio.sleep(0)
                    taken = take(ids)
                    self.relayed += taken
                    del ids[:taken]
                for index in ids:
                    yield EngineChunk((index,))
                if chunk.final:
                    yield EngineChunk(final=True)


@dataclass(frozen=True)
class ScriptedStatus:
    ready: bool
    reason: str


class ScriptedBackend:
    """A backend whose engine comes and goes by ``arrive`` and ``leave``."""

    def __init__(self, engine: Engine | None) -> None:
        self.on_discovered: Callable[[EngineFeatures], None] | None = None
        self.health = EngineHealth()
        self.closed = False
        self._initial = engine
        self._engine: Engine | None = None
        self._reason, self._kind = "Triton has not been reached yet.", ErrorKind.UNAVAILABLE

    def arrive(self, engine: Engine) -> None:
        try:
            if self.on_discovered is not None:
                self.on_discovered(engine.features)
        except ValueError as error:
            self._reason, self._kind = str(error), ErrorKind.UNSERVABLE
            return
        self._engine = engine

    def leave(self, reason: str, kind: ErrorKind = ErrorKind.UNAVAILABLE) -> None:
        self._engine, self._reason, self._kind = None, reason, kind

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise EngineError(self._kind, "The model is currently unavailable; try again later.", self._reason)
        return self._engine

    @property
    def features(self) -> EngineFeatures:
        return self.engine.features

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        return ()

    def route(self, aim: RoutingHints) -> SingleRoute:
        del aim
        return SingleRoute(self.engine, self.health)

    async def find(self, aim: RoutingHints) -> SingleRoute:
        return self.route(aim)

    def watch(self, watcher: Callable[[EngineHealth], None]) -> None:
        watcher(self.health)

    @property
    def condition(self) -> EngineCondition:
        if self._engine is not None:
            return READY
        unservable = self._kind is ErrorKind.UNSERVABLE
        return EngineCondition(ready=False, state="mismatched" if unservable else "unreachable", reason=self._reason)

    @property
    def status(self) -> ScriptedStatus:
        return ScriptedStatus(self._engine is not None, self._reason)

    @property
    def ready(self) -> bool:
        return self.status.ready

    async def start(self) -> None:
        if self._initial is not None:
            self.arrive(self._initial)

    def check(self) -> None: ...

    async def close(self) -> None:
        self.closed = True


def chunks(ids: list[int], **last: object) -> list[Step]:
    """One chunk a token and a final one without tokens."""
    return [*(EngineChunk(ids=[index]) for index in ids), EngineChunk(final=True, **last)]  # type: ignore[arg-type]


def settings_for(folder: Path | None, **changes: object) -> Settings:
    """Settings of one scripted model; ``changes`` are sections, or keys of the model."""
    names = ("server", "limits", "timeouts", "state", "telemetry", "auth")
    sections = {key: changes.pop(key) for key in names if key in changes}
    model = {
        "name": MODEL,
        "triton": {"url": "127.0.0.1:1"},
        "max_seq_len": MAX_SEQ_LEN,
        "tokenizer": folder,
        **changes,
    }
    return Settings.model_validate({**sections, "models": [model]})
