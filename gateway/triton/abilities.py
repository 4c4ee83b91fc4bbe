"""The abilities of a model and the tensors behind them, discovered once and used for every request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gateway.settings import ModelSettings, Task, TextStreaming
from gateway.settings.encoder_settings import EncoderSettings
from gateway.text.guides.guide import GuideBackend
from gateway.triton import hints
from gateway.triton.guides import declared_guide_backend, declared_guide_types
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import is_own_bls

MAX_TOP_LOGPROBS = 20

Source = Literal["tensor", "logits"] | None
"""The source of log-probs: a tensor of their own, logits, or none."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The operator's settings of an engine, in addition to its configuration in Triton.

    Attributes:
        vocab_size: width of its logits, where the configuration does not say (the true one, without padding).
        tokens_per_block: tokens in a block of its KV cache, where the configuration does not say.
        generation_logits: whether log-probs may be computed from ``generation_logits``: the engine was built to
            gather them, and 4 bytes per vocabulary entry and token may travel (wire contract 2.6).
        context_logits_tokens: longest prompt whose log-probs may be computed from ``context_logits``; 0 allows none.
        max_draft_tokens: longest draft that the engine was built for, in tokens; None where not stated.
        version: numbers of TensorRT-LLM's version; None where not stated.
        llmapi_text: the text of a response in a stream of the LLM API's model; ``auto`` goes by its inputs.
        text_streaming: treatment of streams of models whose responses hold only their own text.
        task: the model's task.
        encoder: settings of an encoder that its configuration lacks.
    """

    vocab_size: int | None = None
    tokens_per_block: int | None = None
    generation_logits: bool = False
    context_logits_tokens: int = 0
    max_draft_tokens: int | None = None
    version: tuple[int, ...] | None = None
    llmapi_text: Literal["auto", "cumulative", "delta"] = "auto"
    text_streaming: TextStreaming = "reject"
    task: Task = "generate"
    encoder: EncoderSettings = field(default_factory=EncoderSettings)


NO_OPTIONS = EngineOptions()


@dataclass(frozen=True, slots=True)
class DraftModel:
    """The draft model of the engine behind a BLS model.

    Attributes:
        name: its name in Triton.
        taken: whether the engine accepts its draft tokens.
        logits: whether it returns the logits of its draft tokens.
        most: most draft tokens at a time; None is any number.
        streams: whether an answer with draft tokens may be streamed.
    """

    name: str
    taken: bool
    logits: bool
    most: int | None
    streams: bool


@dataclass(frozen=True, slots=True)
class Abilities:
    """The optional abilities of a model, and the tensors behind them.

    Attributes:
        token_ids: whether its answers carry token ids.
        logprobs: source of the chosen tokens' log-probs.
        normalizes: whether the tensor's log-probs are relative to the candidates that sampling leaves.
        top_logprobs: source of alternatives.
        prompt_logprobs: source of the prompt's log-probs.
        prompt_logprobs_tokens: longest prompt for them; None is any.
        vocab_size: width of the logits; None where not stated.
        beams: most beams; 1 is without beam search.
        cached_tokens: ``tokens`` has an exact output, ``blocks`` one in blocks, None has neither.
        tokens_per_block: tokens in a block of the KV cache.
        guide_types: kinds of ``Guide`` that may be sent.
        guide_backend: compiler of guides; None where not stated.
        max_draft_tokens: most tokens of a request's own draft: 0 for none, None for any number.
        draft_model: the draft model; None without one.
        text_streaming: treatment of streams whose text would be damaged.
    """

    token_ids: bool = True
    logprobs: Source = "tensor"
    normalizes: bool = False
    top_logprobs: Source = "tensor"
    prompt_logprobs: Source = "tensor"
    prompt_logprobs_tokens: int | None = None
    vocab_size: int | None = None
    beams: int = 1
    cached_tokens: Literal["tokens", "blocks"] | None = "tokens"
    tokens_per_block: int = 0
    guide_types: frozenset[str] = frozenset()
    guide_backend: GuideBackend | None = None
    max_draft_tokens: int | None = 0
    draft_model: DraftModel | None = None
    text_streaming: TextStreaming = "reject"


def read_abilities(
    called: ModelView,
    engine: ModelView | None,
    options: EngineOptions,
    *,
    token_ids: bool = True,
    guided: bool = True,
    draft: ModelView | None = None,
    drafted: bool = True,
) -> Abilities:
    """Read the abilities from the configuration of the called model and of the engine behind it.

    Args:
        called: the model that requests name.
        engine: the engine model, which has the parameters; the same as ``called`` on the tokens path.
        options: the operator's settings.
        token_ids: whether answers carry token ids, which every value per token needs.
        guided: False where a probe has shown that the engine has no guided decoder.
        draft: the draft model.
        drafted: False where a probe has shown that the engine rejects drafts.
    """
    tensor = _pair(called, "return_log_probs", "output_log_probs")
    alternatives = tensor and _pair(called, "num_top_log_probs", "top_log_probs")
    logits = options.generation_logits and _pair(called, "return_generation_logits", "generation_logits")
    normalizes = tensor and hints.normalizes_log_probs(engine, options.version)
    exact = tensor and not (normalizes and logits)  # else the logits give the model's own
    prompt = _pair(called, "num_prompt_log_probs", "prompt_log_probs")
    context = options.context_logits_tokens > 0 and _pair(called, "return_context_logits", "context_logits")
    from_context = context and not prompt
    block = options.tokens_per_block or hints.number(engine, "tokens_per_block") or 0
    return Abilities(
        token_ids=token_ids,
        logprobs=_source(exact, logits, token_ids),
        normalizes=normalizes and exact,
        top_logprobs=_source(alternatives and exact, logits, token_ids),
        prompt_logprobs=_source(prompt, context, token_ids),
        prompt_logprobs_tokens=options.context_logits_tokens if from_context else None,
        vocab_size=options.vocab_size or hints.vocab_size(engine),
        beams=_beams(called, engine),
        cached_tokens=_cached_tokens(called, block),
        tokens_per_block=block,
        guide_types=declared_guide_types(called, engine) if guided else frozenset(),
        guide_backend=declared_guide_backend(engine),
        max_draft_tokens=_max_draft_tokens(called, options) if drafted else 0,
        draft_model=None if draft is None else _draft_model(called, draft, options, taken=drafted),
        text_streaming=options.text_streaming,
    )


def _pair(model: ModelView, switch: str, output: str) -> bool:
    return switch in model.inputs and output in model.outputs


def _source(tensor: bool, logits: bool, token_ids: bool) -> Source:
    if not token_ids:
        return None
    return "tensor" if tensor else "logits" if logits else None


def _beams(called: ModelView, engine: ModelView | None) -> int:
    if "beam_width" not in called.inputs:
        return 1
    # Beams come in one response with the prompt before them, unless it can be left out.
    excludes = (hints.parameter(engine, "exclude_input_in_output") or "false").lower() == "true"
    if not excludes and "exclude_input_in_output" not in called.inputs:
        return 1
    return hints.number(engine, "max_beam_width") or 1


def _max_draft_tokens(called: ModelView, options: EngineOptions) -> int | None:
    if "draft_input_ids" not in called.inputs:
        return 0
    # A TensorRT engine takes what it was built for, and its configuration does not say it; this project's tell when
    # they are asked.
    return options.max_draft_tokens if "engine" in called.parameters else options.max_draft_tokens or 0


def _draft_model(called: ModelView, draft: ModelView, options: EngineOptions, *, taken: bool) -> DraftModel:
    # Whether a TensorRT engine gathers logits, its configuration does not say.
    rejects = "engine" in draft.parameters and draft.parameters.get("gather_logits", "false").lower() == "false"
    return DraftModel(
        name=draft.name, taken=taken, logits=not rejects, most=options.max_draft_tokens, streams=is_own_bls(called)
    )


def _cached_tokens(called: ModelView, block: int) -> Literal["tokens", "blocks"] | None:
    if _pair(called, "return_perf_metrics", "num_cached_tokens"):
        return "tokens"
    return "blocks" if block and _pair(called, "return_perf_metrics", "kv_cache_reused_blocks") else None


def engine_options(settings: ModelSettings) -> EngineOptions:
    """Make the engine options from the settings of one model."""
    return EngineOptions(
        vocab_size=settings.vocab_size,
        tokens_per_block=settings.tokens_per_block,
        generation_logits=settings.logits_for_logprobs,
        context_logits_tokens=settings.max_logits_tokens if settings.logits_for_logprobs else 0,
        max_draft_tokens=settings.speculative.max_draft_tokens,
        version=tuple(map(int, settings.engine_version.split("."))) if settings.engine_version else None,
        llmapi_text=settings.llmapi.text,
        text_streaming=settings.text_streaming,
        task=settings.task,
        encoder=settings.encoder,
    )
