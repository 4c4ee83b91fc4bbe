"""A served model that generates text: its tokenizer and templates, and its generations."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from gateway.generation import (
    Capability,
    EngineError,
    EngineFeatures,
    ErrorKind,
    SamplingParams,
    SequenceAssembler,
    TokenGenerator,
)
from gateway.generation.route import AdmittedGeneration, EngineLookup, Route, RoutingHints, generator_of
from gateway.http.access.caller import caller
from gateway.http.access.permit import bounded, permit
from gateway.serving import prompts
from gateway.serving.admission.admission import GenerationDemand
from gateway.serving.answer_reader import AnswerReader, PreparedTurn, prepare
from gateway.serving.backend import Backend
from gateway.serving.budgeted_engine import BudgetedEngine, ReasoningBudget
from gateway.serving.capabilities import capabilities, text_losses
from gateway.serving.deadlines import Deadlines
from gateway.serving.engine_requests import engine_requests, predictions_work, tokenize_prediction
from gateway.serving.generation import Generation
from gateway.serving.loading import ModelParts, load_parts, needs_discovery
from gateway.serving.lora_engine import LoraEngine, LoraState
from gateway.serving.prompts import PromptSource, Truncation, spoken
from gateway.serving.served_model import ModelContext, ServedModel
from gateway.serving.tokenizer_match import OVERRIDE, tokenizer_mismatch
from gateway.settings import ConfigError, ModelSettings
from gateway.settings.model_settings import AdapterSettings, SamplingDefaults
from gateway.telemetry.traces import RequestTrace, current_trace
from gateway.text.families import ToolPlan
from gateway.text.families.family_choice import FamilyChoice
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens.segments import CacheScope

_log = logging.getLogger(__name__)
Built = TypeVar("Built")


class GeneratorModel(ServedModel):
    """A served model that generates text.

    Attributes:
        reasons: whether answers may begin with reasoning, as far as the family is known.
    """

    def __init__(self, settings: ModelSettings, backend: Backend, key: str, context: ModelContext) -> None:
        """Prepare a model; see ``ServedModel``."""
        super().__init__(settings, backend, key, context)
        self._token_cache = context.token_cache
        self._relay = context.relay
        timeouts = context.timeouts
        self._deadlines = Deadlines(timeouts.first_token_s, timeouts.total_s, timeouts.between_tokens_s)
        self._deadlines_of: Mapping[bool, Deadlines] = {}  # whether it is streamed -> of an answer, once discovered
        self._parts: ModelParts | None = None
        self.reasons = False
        self._adapters: dict[str, LoraState] = {}  # by the endpoint that holds it
        self._running: set[Generation] = set()

    @property
    def max_seq_len(self) -> int | None:
        """The most tokens of prompt and answer; None before it is known."""
        return self._parts.max_seq_len if self._parts else None

    @property
    def tokenizer_folder(self) -> Path | None:
        """The folder of the tokenizer; None before it is known."""
        return self._parts.tokenizer_source if self._parts else None

    @property
    def family_choice(self) -> FamilyChoice | None:
        """The model family and how certain it is; None before it is known."""
        return self._parts.choice if self._parts else None

    @property
    def template_renders(self) -> bool | None:
        """Whether the chat template renders a user message; None before it is known."""
        return self._parts.template(tools=False).fault is None if self._parts else None

    def known_capabilities(self) -> Mapping[str, Capability]:
        """The current capability for each request parameter.

        Raises:
            EngineError: as the backend's ``engine`` while it is unreachable, and nothing is known.
        """
        self.check_ready()
        return self._capabilities

    def check_ready(self) -> None:
        """Check that the engine was found and the tokenizer is loaded; see ``ServedModel``."""
        _ = self.backend.features, self._parts or self.parts

    @property
    def parts(self) -> ModelParts:
        """The tokenizer, templates and limits.

        Raises:
            EngineError: as the backend's ``engine``, before they are loaded.
        """
        if self._parts is None:
            _ = self.backend.features  # which knows why there are none yet
            raise EngineError(ErrorKind.UNAVAILABLE, "The model is still being loaded.")
        return self._parts

    @property
    def defaults(self) -> SamplingDefaults:
        """Values for fields that the caller's request leaves out, within its limits.

        Raises:
            EngineError: as ``parts``.
        """
        defaults, most = (self._parts or self.parts).defaults, caller().limits.max_tokens
        if most is None or defaults.max_tokens is None or defaults.max_tokens <= most:
            return defaults
        return SamplingDefaults.model_validate(defaults.model_dump() | {"max_tokens": most})

    async def _load(self) -> bool:
        if needs_discovery(self.settings):
            return False
        self._parts = await anyio.to_thread.run_sync(load_parts, self.settings, None, self._key)
        self.reasons = self._parts.family.reasons
        return True

    def recall(self, salt: str | None = None) -> CacheScope | None:
        """Return the cached token ids of the caller's prompts; None without a cache.

        Args:
            salt: the request's ``cache_salt``, which separates requests of a caller.
        """
        if self._token_cache is None:
            return None
        parts = self._parts or self.parts
        return CacheScope(self._token_cache, parts.tokenizer.fingerprint, caller().id.encode(), (salt or "").encode())

    async def build_prompt(
        self,
        source: PromptSource,
        finish: Callable[[Prompt], Built],
        truncation: Truncation | None = None,
        salt: str | None = None,
    ) -> Built:
        """Render and tokenize a prompt; a long one off the event loop, in its turn.

        Args:
            source: source of the prompt.
            finish: makes the result from the prompt, in the same thread.
            truncation: how a prompt that is too long is cut; None leaves it whole.
            salt: as of ``recall``.

        Raises:
            EngineError: as the backend's ``engine`` when the model is not ready, CONTEXT_LENGTH when the prompt is far
                too long, QUEUE_FULL when too many long ones wait.
            BadRequestError: when the model cannot take the prompt.
            TemplateError: when the chat template rejects the messages.
        """
        parts, features = self._parts or self.parts, self.backend.features
        room = parts.max_seq_len - features.draft_room
        frames = None if features.prompt_ids else features.adds_special_tokens

        def build(cancel: threading.Event | None, unknown: int | None = None) -> Built:
            most = None if truncation is None else prompts.most_tokens(parts)
            recall = self.recall(salt)
            prompt = prompts.build(
                source, parts, self.settings, frames=frames, limit=most, cancel=cancel, recall=recall, unknown=unknown
            )
            self.metrics.recalled_tokens.inc(prompt.recalled)
            self.metrics.tokenized_tokens.inc(len(prompt.ids) - prompt.recalled)
            if truncation is not None:
                prompt = prompts.truncated(prompt, source, truncation, parts, room=room, frames=frames)
            return finish(prompt)

        trace = current_trace()
        if trace is not None and trace.content:
            trace.capture_messages(spoken(source))
        with contextlib.nullcontext() if trace is None else trace.step("prompt"):
            work = prompts.long_work(source)
            if work is None:
                return build(None)
            if self._token_cache is not None and prompts.may_be_known(source, work, parts):
                with contextlib.suppress(prompts.UnknownTextError):
                    return build(None, prompts.LONG)
            return await work.run(build, self._deadlines.first_token_s)

    def prepare(self, turn: ToolPlan, prompt: Prompt) -> PreparedTurn:
        """Prepare a turn by the model's family.

        Args:
            turn: the turn.
            prompt: prompt of ``build_prompt``.
        """
        return prepare(turn, self.parts.family, prompt.text, eager=self.settings.tool_call_streaming == "eager")

    def affinity(self, source: PromptSource, session: str | None) -> str | None:
        """Make the id of a conversation, whose requests go to one endpoint; None where that has no use.

        Args:
            source: source of the prompt, whose system prompt and first question identify the conversation.
            session: the client's id of the conversation, if any.
        """
        triton = self.settings.triton
        if not triton.endpoints or triton.balance.policy != "prefix":
            return None
        return session or prompts.opening(source)

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        arrived: float,
        readers: Sequence[AnswerReader] = (),
        budget: ReasoningBudget | None = None,
        *,
        affinity: str | None = None,
    ) -> list[Generation]:
        """Prepare ``params.n`` generations of one prompt; each begins when its context is entered.

        Args:
            prompt: prompt of ``build_prompt``.
            params: parameters of the answers.
            request_id: prefix of the engine's request ids.
            arrived: ``time.perf_counter()`` at the arrival of the request.
            readers: one for each generation where the answers must be read, else none.
            budget: budget of the reasoning in answers that are read.
            affinity: result of ``affinity``.

        Raises:
            EngineError: as the backend's ``engine`` when the model is not ready, CONTEXT_LENGTH when the prompt is too
                long.
            BadRequestError: when the engine does not support what is requested, or the caller may not ask for it.
            LimitedError: the caller has too few tokens left.
        """
        features, parts = self.backend.features, self._parts or self.parts
        who, trace = caller(), current_trace()
        asked = params.max_tokens is not None
        if who.limits.max_tokens is not None:
            params = bounded(params)
        predicted = await self._predicted(params, parts) if params.prediction else ()
        requests = engine_requests(
            prompt, params, parts=parts, features=features, settings=self.settings, request_id=request_id,
            predicted=predicted,
        )  # fmt: skip
        granted = permit()
        spending = (
            None
            if granted is None
            else await granted.reserve(len(prompt.ids), [each.max_tokens for each in requests], explicit=asked)
        )
        find = functools.partial(self.backend.find, RoutingHints(prompt.ids, affinity))
        fitted = self.settings.lora is not None or budget is not None
        generations = []
        for request, reader in zip_longest(requests, readers):
            tokens = len(prompt.ids) + request.max_tokens
            demand = GenerationDemand(who.id, who.weight, tokens, params.priority)
            enter = functools.partial(self.admission.enter, demand)
            generation = Generation(
                EngineLookup(
                    find,
                    functools.partial(self._fit_engine, budget, reader) if fitted else None,
                    enter if trace is None else functools.partial(_queue, trace, enter),
                ),
                request,
                SequenceAssembler(request, parts.tokenizer, reader),
                deadlines=self._deadlines_of[params.stream],
                metrics=self.metrics,
                arrived=arrived,
                max_parallel=self.settings.max_parallel_generations,
                relay=self._relay,
            )
            generation.running = self._running
            if spending is not None:
                generation.on_end = spending.ended
            generations.append(generation)
        return generations

    async def _predicted(self, params: SamplingParams, parts: ModelParts) -> tuple[int, ...]:
        """The token ids of a prediction; of a long one off the event loop, and in its turn."""
        tokenize = functools.partial(tokenize_prediction, params, parts)
        work = predictions_work(params)
        return tokenize() if work is None else await work.run(tokenize, self._deadlines.first_token_s)

    @property
    def engine(self) -> TokenGenerator:
        """The engine, with the model's adapter if it has one; of several engines any.

        Raises:
            EngineError: as the backend's ``features`` when the model is not ready.
        """
        return self._adapted(self.backend.route(RoutingHints()))

    def _adapted(self, route: Route) -> TokenGenerator:
        """A route's engine with the model's adapter, which each engine loads by itself."""
        adapter = (self._parts or self.parts).lora
        if adapter is None:
            return generator_of(route)
        state = self._adapters.get(route.address)
        if state is None or state.adapter is not adapter:
            state = self._adapters[route.address] = LoraState(adapter, self.name)
        return LoraEngine(generator_of(route), state)

    def _fit_engine(self, budget: ReasoningBudget | None, reader: AnswerReader | None, route: Route) -> TokenGenerator:
        """The engine for one answer, whose reasoning may have a budget."""
        engine = self._adapted(route)
        return engine if budget is None or reader is None else BudgetedEngine(engine, budget, reader)

    def abort(self, error: EngineError) -> None:
        """End all running generations with an error."""
        for generation in list(self._running):
            generation.abort(error)

    def _check_engine(self, features: EngineFeatures) -> None:
        self._parts = load_parts(self.settings, features, self._key, self._parts)
        self.reasons = self._parts.family.reasons
        unserved = _unserved(self.settings, features, self._key) or self._mismatch(features, self._parts)
        if unserved is not None:
            raise ConfigError(unserved)

    def _adopt(self, features: EngineFeatures) -> None:
        parts = self.parts
        whole = dataclasses.replace(self._deadlines, first_token_s=self._timeouts.total_s)
        self._deadlines_of = {
            stream: whole if features.one_response(stream=stream) else self._deadlines for stream in (False, True)
        }
        self._capabilities = capabilities(features, parts, self.settings)
        self._losses = {**features.losses, **text_losses(parts, features)}
        self._tell(features, parts)

    def _mismatch(self, features: EngineFeatures, parts: ModelParts) -> str | None:
        """Compare the tokenizer with the engine's; returns the difference in one sentence, None without one."""
        if not self.settings.check_tokenizer:
            return None
        found = tokenizer_mismatch(parts.tokenizer, parts.tokenizer_source, features)
        return found and f"{self._key}.tokenizer: {found}; {OVERRIDE}"

    def _tell(self, features: EngineFeatures, parts: ModelParts) -> None:
        """Log how the model is served from now on, and what is wrong with it."""
        if self._losses:
            texts = (f"{loss} ({cure.rstrip('.')})" if cure else loss for loss, cure in self._losses.items())
            _log.warning(
                "answers of model %s are incomplete: %s",
                self.name,
                "; ".join(texts),
                extra={"event": "model_lossy"},
            )
        for doubt, cure in parts.choice.doubts.items():
            _log.warning(
                "model %s is assumed to belong to the family %s, by %s, but %s: %s",
                self.name, parts.family.name, parts.choice.reason, doubt, cure,
                extra={"event": "family_doubtful"},
            )  # fmt: skip
        fault = parts.template(tools=False).fault
        if fault is not None:
            _log.warning(
                "the chat template of model %s cannot render a user message",
                self.name,
                extra={"event": "template_fails", "detail": fault},
            )
        obstacle = parts.tokenizer.obstacle
        if obstacle is not None:
            _log.warning(
                "model %s tokenizes each prompt completely, without reuse, because %s",
                self.name,
                obstacle,
                extra={"event": "prompts_tokenized_whole"},
            )
        _log.info(
            "model %s is served on the %s path: %s", self.name, features.path, features.reason,
            extra={"event": "model_served", "max_seq_len": parts.max_seq_len,
                   "tokenizer": str(parts.tokenizer_source),
                   "family": parts.family.name, "family_reason": parts.choice.reason},
        )  # fmt: skip


async def _queue(trace: RequestTrace, enter: Callable[[], Awaitable[AdmittedGeneration]]) -> AdmittedGeneration:
    """Wait for the turn of a generation, as a step of a request that is traced."""
    with trace.step("queue"):
        return await enter()


def _unserved(settings: ModelSettings, features: EngineFeatures, key: str) -> str | None:
    """Find a setting that the engine does not support; returns one sentence, None without such a setting."""
    speculative = settings.speculative
    for name, given, where in (
        ("lora", settings.lora, "lora"),
        ("prompt_table", settings.prompt_tables, "prompt_tables"),
        ("num_draft_tokens", speculative.num_draft_tokens, "speculative.num_draft_tokens"),
        ("use_draft_logits", speculative.use_draft_logits, "speculative.use_draft_logits"),
    ):
        how = features.capabilities.get(name)
        if given and how is not None and how.how == "impossible":
            return f"{key}.{where}: {how.note}"
    if settings.lora is not None:
        return _unserved_adapter(settings.lora, features, f"{key}.lora")
    return None


def _unserved_adapter(adapter: AdapterSettings, features: EngineFeatures, key: str) -> str | None:
    form = features.adapters
    if form == "path" and (adapter.path is None or adapter.folder is not None):
        return f"{key}: the LLM API loads an adapter itself; set its name and path on Triton's machine, not a folder"
    if form != "path" and adapter.path is not None:
        return f"{key}.path: only the LLM API loads an adapter by path; set its folder"
    if form == "name" and (adapter.name is None or adapter.folder is not None):
        return f"{key}: the vLLM backend uses the adapter names of its multi_lora.json; set the name, not a folder"
    if adapter.name is not None and adapter.path is None and form != "name":
        return f"{key}.name: only the vLLM backend uses adapters by name; the LLM API needs name and path"
    return None
