"""Makes engines from what models declare: their abilities and what they reject (wire contract 0.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gateway.generation.engine import EngineFeatures, Estimate
from gateway.text.contract import BLS, LLMAPI, PLAIN_TEXT, TENSORRT_LLM, VLLM
from gateway.triton import hints
from gateway.triton.abilities import MAX_TOP_LOGPROBS, Abilities, EngineOptions, read_abilities
from gateway.triton.connection import Connection
from gateway.triton.dialects.ensemble import EnsembleEngine
from gateway.triton.dialects.llmapi import LlmApiEngine
from gateway.triton.dialects.plain_text import PlainEngine
from gateway.triton.dialects.tensorrt_llm import capabilities
from gateway.triton.dialects.tokens import TokensEngine
from gateway.triton.dialects.vllm import VllmEngine
from gateway.triton.llmapi_capabilities import llmapi_capabilities
from gateway.triton.llmapi_dialect import read_dialect
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, ignored_inputs
from gateway.triton.plain_capabilities import plain_capabilities
from gateway.triton.servable import (
    ALWAYS_ENSEMBLE,
    ALWAYS_LLMAPI,
    ALWAYS_PLAIN,
    ALWAYS_TOKENS,
    ALWAYS_VLLM,
    check_required,
    check_text,
    losses,
    takes_stops,
)
from gateway.triton.text_path import is_decoupled, read_text_path
from gateway.triton.vllm_capabilities import vllm_capabilities
from gateway.triton.vllm_dialect import GUIDE_KEYS, read_vllm

_NO_OPTIONS = EngineOptions()


def tokens_engine(
    connection: Connection, models: Models, reason: str, options: EngineOptions = _NO_OPTIONS
) -> TokensEngine:
    """Make the engine that calls the engine model with token ids."""
    engine = models.engine
    assert engine is not None  # noqa: S101
    check_required(engine, TENSORRT_LLM, ALWAYS_TOKENS)
    abilities = read_abilities(engine, engine, options, guided=models.guided, drafted=models.drafted)
    features = replace(
        _features("tokens", engine, models, abilities, options, reason),
        warnings=hints.warnings(engine),
        max_draft_tokens=abilities.max_draft_tokens,
        streams="pieces" if is_decoupled(models) else "whole",
        losses=losses(models, options, "tokens"),
    )
    return TokensEngine(connection, engine, features, abilities)


def _features(
    path: Literal["tokens", "ensemble"],
    called: ModelView,
    models: Models,
    abilities: Abilities,
    options: EngineOptions,
    reason: str,
) -> EngineFeatures:
    """What follows from abilities, whichever model is called."""
    return EngineFeatures(
        path=path,
        reason=reason,
        model=called.name,
        token_ids=abilities.token_ids,
        prompt_ids=path == "tokens",
        logprobs=abilities.logprobs is not None,
        max_top_logprobs=MAX_TOP_LOGPROBS if abilities.top_logprobs else 0,
        max_seq_len=hints.max_seq_len(models.engine),
        tokenizer_dir=hints.tokenizer_dir(models.engine, models.preprocessing),
        vocab_size=abilities.vocab_size,
        tokenized=models.tokenized,
        capabilities=capabilities(called, models.engine, abilities, prompt_ids=path == "tokens"),
        guide_types=abilities.guide_types,
        guide_backend=abilities.guide_backend,
        draft_room=_draft_room(models, options),
    )


def _draft_room(models: Models, options: EngineOptions) -> int:
    """What a TensorRT engine that was built for drafts keeps free: it cuts answers that would need it, in silence."""
    ours = models.engine is not None and "engine" in models.engine.parameters
    return 0 if ours or not models.drafted else options.max_draft_tokens or 0


def llmapi_engine(
    connection: Connection, models: Models, reason: str, options: EngineOptions = _NO_OPTIONS
) -> LlmApiEngine:
    """Make the engine that calls the stock model of the LLM API with text."""
    entry = models.entry
    check_required(entry, LLMAPI, ALWAYS_LLMAPI)
    dialect = read_dialect(entry, options)
    features = EngineFeatures(
        path="llmapi",
        reason=reason,
        model=entry.name,
        token_ids=False,
        prompt_ids=False,
        logprobs=False,
        max_seq_len=hints.number(entry, "max_seq_len"),
        tokenizer_dir=hints.parameter(entry, "tokenizer_dir"),
        vocab_size=options.vocab_size,
        capabilities=llmapi_capabilities(entry, dialect),
        adds_special_tokens=dialect.adds_special_tokens,
        hides_special_tokens=True,
        ends_at_eos=dialect.ends_at_eos,
        streams="pieces" if dialect.streams else "whole",
        estimates=frozenset({"completion_tokens"}),
        losses=losses(models, options),
    )
    return LlmApiEngine(connection, entry, features, dialect)


def vllm_engine(
    connection: Connection, models: Models, reason: str, options: EngineOptions = _NO_OPTIONS
) -> VllmEngine:
    """Make the engine that calls a model of Triton's vLLM backend."""
    entry = models.entry
    check_required(entry, VLLM, ALWAYS_VLLM)
    dialect = read_vllm(entry, models.guide_field)
    features = EngineFeatures(
        path="vllm",
        reason=reason,
        model=entry.name,
        token_ids=dialect.token_ids,
        prompt_ids=False,
        logprobs=dialect.token_ids,
        max_top_logprobs=MAX_TOP_LOGPROBS if dialect.token_ids else 0,
        max_seq_len=hints.number(entry, "max_seq_len"),
        tokenizer_dir=hints.parameter(entry, "tokenizer_dir"),
        vocab_size=options.vocab_size,
        capabilities=vllm_capabilities(dialect),
        guide_types=frozenset(GUIDE_KEYS) if dialect.guide_field else frozenset(),
        adds_special_tokens=True,
        hides_special_tokens=True,
        estimates=_estimates(counts=dialect.counts, finishes=dialect.finishes),
        losses=losses(models, options),
    )
    return VllmEngine(connection, entry, features, dialect)


def _estimates(*, counts: bool, finishes: bool) -> frozenset[Estimate]:
    """List what may be inexact where a model does not report counts or finish reasons."""
    found: list[Estimate] = []
    if not counts:
        found.append("completion_tokens")
    if not finishes:
        found.append("finish_reason")
    return frozenset(found)


def plain_engine(
    connection: Connection, models: Models, reason: str, options: EngineOptions = _NO_OPTIONS
) -> PlainEngine:
    """Make the engine that calls any other model that takes and answers text."""
    entry = models.entry
    check_required(entry, PLAIN_TEXT, ALWAYS_PLAIN)
    features = EngineFeatures(
        path="text",
        reason=reason,
        model=entry.name,
        token_ids=False,
        prompt_ids=False,
        logprobs=False,
        max_seq_len=hints.number(entry, "max_seq_len"),
        tokenizer_dir=hints.parameter(entry, "tokenizer_dir"),
        vocab_size=options.vocab_size,
        capabilities=plain_capabilities(entry),
        adds_special_tokens=hints.adds_special_tokens(entry),
        streams="pieces" if entry.decoupled else "whole",
        whole=not entry.decoupled,
        estimates=_estimates(counts="num_output_tokens" in entry.outputs, finishes="finish_reason" in entry.outputs),
        losses=losses(models, options),
    )
    return PlainEngine(connection, entry, features)


def _as_read(model: ModelView) -> ModelView:
    """Drop the inputs that a model declares but ignores, so that requests that need such inputs are rejected."""
    return replace(model, inputs=model.inputs - ignored_inputs(model))


def ensemble_engine(
    connection: Connection, models: Models, reason: str, options: EngineOptions = _NO_OPTIONS
) -> EnsembleEngine:
    """Make the engine that calls the ensemble, or a BLS model, with text."""
    entry, engine = _as_read(models.entry), models.engine
    check_text(models, options)
    check_required(entry, BLS, ALWAYS_ENSEMBLE)
    path = read_text_path(models, options)
    abilities = read_abilities(
        entry,
        engine,
        options,
        token_ids=path.token_ids,
        guided=models.guided,
        draft=models.draft,
        drafted=models.drafted,
    )
    if path.cumulative:
        abilities = replace(abilities, beams=1)  # it puts the tokens of one sequence together
    features = replace(
        _features("ensemble", entry, models, abilities, options, reason),
        warnings=hints.warnings(engine),
        adds_special_tokens=hints.adds_special_tokens(models.preprocessing),
        streams=path.streams,
        whole=path.whole,
        estimates=path.estimates,
        losses=losses(models, options),
    )
    return EnsembleEngine(
        connection,
        entry,
        features,
        abilities,
        path,
        engine=engine if takes_stops(models) else None,
    )
