"""From what models declare to an engine: what is refused, what the engine can do (wire contract 0.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.contract import BLS, TENSORRT_LLM, ModelSpec
from gateway.generation.engine import EngineFeatures
from gateway.triton import hints
from gateway.triton.abilities import MAX_TOP_LOGPROBS, EngineOptions, read_abilities
from gateway.triton.connection import Connection
from gateway.triton.engine_capabilities import capabilities
from gateway.triton.engines.ensemble_engine import EnsembleEngine
from gateway.triton.engines.request_encoder import RequestEncoder
from gateway.triton.engines.tokens_engine import TokensEngine
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Pipeline, is_llmapi, is_own_bls

EnginePath = Literal["auto", "tokens", "ensemble"]

_ALWAYS = {"end_id", "pad_id", "exclude_input_in_output", "seed"}
_ALWAYS_TOKENS = frozenset(_ALWAYS | {"input_ids", "input_lengths", "request_output_len", "streaming"})
_ALWAYS_ENSEMBLE = frozenset(_ALWAYS | {"text_input", "max_tokens", "stream"})


class DiscoveryError(ValueError):
    """What is configured cannot be served; the message says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Models:
    """The models behind a configured one.

    Attributes:
        entry: the configured model.
        engine: the one that generates, None when an ensemble has no such step.
        preprocessing: the ensemble's tokenizing step, if it has one.
        pipeline: the ensemble's steps; None when the entry is an engine model itself.
        names: every model that must be ready.
        guided: False once the engine has said that it has no guided decoder.
        draft: the draft model of a BLS model.
        bls: whether the entry is a BLS model.
        drafted: False once the engine has refused a draft.
    """

    entry: ModelView
    engine: ModelView | None
    preprocessing: ModelView | None
    pipeline: Pipeline | None
    names: tuple[str, ...]
    guided: bool = True
    draft: ModelView | None = None
    bls: bool = False
    drafted: bool = True


def check(models: Models, path: EnginePath) -> None:
    """Refuse what cannot be served.

    Raises:
        DiscoveryError: with the reason.
    """
    entry, engine = models.entry, models.engine
    name = entry.name
    if models.bls:
        _check_bls(entry, path)
    elif models.pipeline is None:
        if is_llmapi(entry):
            raise DiscoveryError(f"model {name!r} takes LLM API tensors (sampling_param_*), which is not supported yet")
        if engine is None:
            raise DiscoveryError(
                f"model {name!r} has neither the tensors of an ensemble nor those of an engine of TensorRT-LLM"
            )
        if path == "ensemble":
            raise DiscoveryError(f"path: ensemble is configured, but model {name!r} is an engine model")
    elif path == "tokens" and engine is None:
        raise DiscoveryError(f"path: tokens is configured, but not exactly one step of {name!r} takes token ids")
    for model in (engine, entry if models.bls else None):
        if model is not None and not model.decoupled:
            raise DiscoveryError(
                f"model {model.name!r} is not decoupled, so it cannot stream; "
                "set model_transaction_policy { decoupled: true } in its config.pbtxt"
            )


def _check_bls(model: ModelView, path: EnginePath) -> None:
    if path == "tokens":
        raise DiscoveryError(f"path: tokens is configured, but {model.name!r} is a BLS model, which takes text")
    accumulates = (hints.parameter(model, "accumulate_tokens") or "false").lower() == "true"
    if accumulates and "output_ids" not in model.outputs:
        raise DiscoveryError(
            f"the BLS model {model.name!r} streams the text so far, not what is new; set accumulate_tokens to false"
        )


def _check_required(model: ModelView, spec: ModelSpec, filled: frozenset[str]) -> None:
    known = {name for tensor in spec.inputs if tensor.name in filled for name in tensor.names}
    unknown = sorted(model.required - known)
    if unknown:
        raise DiscoveryError(
            f"model {model.name!r} requires inputs that the gateway does not send: {', '.join(unknown)}"
        )
    encoder = RequestEncoder(model, spec)
    for name in sorted(filled):
        if encoder.declares(name) and (misfit := encoder.misfit(name)):
            raise DiscoveryError(f"model {model.name!r} cannot be called: {misfit}")


_NO_OPTIONS = EngineOptions()


def tokens_engine(
    connection: Connection, models: Models, reason: str, options: EngineOptions = _NO_OPTIONS
) -> TokensEngine:
    """Make the engine that calls the engine model with token ids."""
    engine = models.engine
    assert engine is not None  # noqa: S101
    _check_required(engine, TENSORRT_LLM, _ALWAYS_TOKENS)
    abilities = read_abilities(engine, engine, options, guided=models.guided, drafted=models.drafted)
    features = EngineFeatures(
        path="tokens",
        reason=reason,
        model=engine.name,
        token_ids=True,
        prompt_ids=True,
        logprobs=abilities.logprobs is not None,
        max_top_logprobs=MAX_TOP_LOGPROBS if abilities.top_logprobs else 0,
        max_seq_len=hints.max_seq_len(engine),
        tokenizer_dir=hints.tokenizer_dir(engine, models.preprocessing),
        vocab_size=abilities.vocab_size,
        warnings=hints.warnings(engine),
        capabilities=capabilities(engine, engine, abilities, prompt_ids=True),
        guide_types=abilities.guide_types,
        guide_backend=abilities.guide_backend,
        max_draft_tokens=abilities.max_draft_tokens,
        draft_room=_draft_room(models, options),
    )
    return TokensEngine(connection, engine, features, abilities)


def _draft_room(models: Models, options: EngineOptions) -> int:
    """What a TensorRT engine that was built for drafts keeps free: it cuts answers that would need it, in silence."""
    ours = models.engine is not None and "engine" in models.engine.parameters
    return 0 if ours or not models.drafted else options.max_draft_tokens or 0


def _text_warnings(models: Models, *, stoppable: bool, tokens: bool) -> tuple[str, ...]:
    warnings = list(hints.warnings(models.engine))
    if models.bls and not is_own_bls(models.entry):
        warnings.append("the BLS model passes on no cancel: a cancelled request runs to its end in the engine")
    elif not models.bls and not stoppable:
        warnings.append("the ensemble's engine takes no stop requests: a cancelled request runs to its end there")
    if not tokens:
        warnings.append("the ensemble answers text only: usage is the server's where given, and there are no log-probs")
    return tuple(warnings)


def ensemble_engine(
    connection: Connection, models: Models, reason: str, options: EngineOptions = _NO_OPTIONS
) -> EnsembleEngine:
    """Make the engine that calls the ensemble, or a BLS model, with text."""
    entry, engine = models.entry, models.engine
    _check_required(entry, BLS, _ALWAYS_ENSEMBLE)
    tokens = {"output_ids", "sequence_length"} <= entry.outputs
    if "text_output" not in entry.outputs:
        raise DiscoveryError(f"ensemble {entry.name!r} has no output text_output")
    abilities = read_abilities(
        entry, engine, options, token_ids=tokens, guided=models.guided, draft=models.draft, drafted=models.drafted
    )
    stoppable = engine is not None and "stop" in engine.inputs and not models.bls
    features = EngineFeatures(
        path="ensemble",
        reason=reason,
        model=entry.name,
        token_ids=tokens,
        prompt_ids=False,
        logprobs=abilities.logprobs is not None,
        max_top_logprobs=MAX_TOP_LOGPROBS if abilities.top_logprobs else 0,
        max_seq_len=hints.max_seq_len(engine),
        tokenizer_dir=hints.tokenizer_dir(engine, models.preprocessing),
        vocab_size=abilities.vocab_size,
        warnings=_text_warnings(models, stoppable=stoppable, tokens=tokens),
        capabilities=capabilities(entry, engine, abilities, prompt_ids=False),
        guide_types=abilities.guide_types,
        guide_backend=abilities.guide_backend,
        draft_room=_draft_room(models, options),
    )
    return EnsembleEngine(
        connection,
        entry,
        features,
        abilities,
        engine=engine if stoppable else None,
        adds_special_tokens=hints.adds_special_tokens(models.preprocessing),
    )
