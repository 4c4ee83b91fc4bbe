"""The models behind a configured one (wire contract 1.2 and 1.6).

The tensor maps identify the steps of an ensemble, parameters those of a BLS model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.generation.tokenizing import TokenizedSentences
from gateway.triton import hints
from gateway.triton.model_view import EnsembleStep, ModelView

_ENGINE_INPUTS = frozenset({"input_ids", "input_lengths", "request_output_len"})


def is_engine(model: ModelView) -> bool:
    """Tell whether a model takes and returns token ids as the engine model does."""
    return model.inputs >= _ENGINE_INPUTS and "output_ids" in model.outputs


def is_bls(model: ModelView) -> bool:
    """Tell whether a model does an ensemble's work by calling the steps itself (wire contract 1.6)."""
    takes_text = not model.steps and {"text_input", "max_tokens"} <= model.inputs
    return takes_text and "accumulate_tokens" in model.parameters


def is_own_bls(model: ModelView) -> bool:
    """Tell whether a BLS model is this project's, which streams drafted answers and ends cancelled requests."""
    return is_bls(model) and "max_concurrent_requests" in model.parameters


@dataclass(frozen=True, slots=True)
class BlsSteps:
    """The models that a BLS model calls; upstream's names by default.

    Attributes:
        text: turns text into token ids.
        engine: generates.
        detokenize: turns token ids into text.
        draft: the draft model; None without one.
    """

    text: str
    engine: str
    detokenize: str
    draft: str | None


def read_bls(model: ModelView) -> BlsSteps:
    """Find the called models by the parameters of a BLS model."""
    return BlsSteps(
        text=hints.parameter(model, "preprocessing_model_name") or "preprocessing",
        engine=hints.parameter(model, "tensorrt_llm_model_name") or "tensorrt_llm",
        detokenize=hints.parameter(model, "postprocessing_model_name") or "postprocessing",
        draft=hints.parameter(model, "tensorrt_llm_draft_model_name"),
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of an ensemble by their work.

    Attributes:
        text: the step that turns text into token ids, if there is just one.
        engine: the step that generates, if there is just one.
        detokenize: the step that turns token ids into text, if there is just one.
        deviation: why the ensemble is not stock, as the end of a sentence; None when it is.
    """

    text: EnsembleStep | None
    engine: EnsembleStep | None
    detokenize: EnsembleStep | None
    deviation: str | None


def read_pipeline(ensemble: ModelView) -> Pipeline:
    """Find the steps, and decide whether the gateway may replace the first and the last one.

    It may when there are just the three and the token ids flow directly from one to the next: then no other model reads
    the prompt or the answer.
    """
    text = _single(ensemble, lambda step: "QUERY" in step.inputs)
    engine = _single(ensemble, lambda step: set(step.inputs) >= _ENGINE_INPUTS and "output_ids" in step.outputs)
    detokenize = _single(ensemble, lambda step: "TOKENS_BATCH" in step.inputs)
    return Pipeline(text, engine, detokenize, _deviation(ensemble, text, engine, detokenize))


def _deviation(
    ensemble: ModelView, text: EnsembleStep | None, engine: EnsembleStep | None, detokenize: EnsembleStep | None
) -> str | None:
    if engine is None:
        return "exactly one of its steps must take token ids"
    if text is None or detokenize is None:
        return f"exactly one of its steps must {'take text' if text is None else 'detokenize'}"
    others = [step.model for step in ensemble.steps if step not in (text, engine, detokenize)]
    if others:
        return f"it has an additional step, {others[0]!r}"
    flows = (
        (text.inputs["QUERY"] in ensemble.inputs, "its prompt does not come directly from the request"),
        (
            engine.inputs["input_ids"] == text.outputs.get("INPUT_ID"),
            "its engine's token ids do not come directly from the tokenizing step",
        ),
        (
            detokenize.inputs["TOKENS_BATCH"] == engine.outputs["output_ids"],
            "its detokenizing step does not take the engine's token ids",
        ),
        (detokenize.outputs.get("OUTPUT") in ensemble.outputs, "its text is not returned unchanged"),
    )
    return next((broken for holds, broken in flows if not holds), None)


def _single(ensemble: ModelView, matches: Callable[[EnsembleStep], bool]) -> EnsembleStep | None:
    found = [step for step in ensemble.steps if matches(step)]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Models:
    """The models behind a configured model.

    Attributes:
        entry: the configured model.
        engine: the one that generates, None when an ensemble has no such step.
        preprocessing: the ensemble's tokenizing step, if it has one.
        pipeline: the ensemble's steps; None when the entry is not an ensemble.
        names: every model that must be ready.
        guided: False once the engine has said that it has no guided decoder.
        draft: the draft model of a BLS model.
        guide_field: the sampling parameter for guides of the vLLM backend; None without one.
        drafted: False once the engine has rejected a draft.
        tokenized: see ``EngineFeatures``.
    """

    entry: ModelView
    engine: ModelView | None
    preprocessing: ModelView | None
    pipeline: Pipeline | None
    names: tuple[str, ...]
    guided: bool = True
    draft: ModelView | None = None
    guide_field: str | None = None
    drafted: bool = True
    tokenized: TokenizedSentences | None = None

    @property
    def bls(self) -> bool:
        """Whether the entry is a BLS model."""
        return is_bls(self.entry)


def called_models(entry: ModelView) -> tuple[str, ...]:
    """The names of the models that a model calls, in the order of discovery; none for an engine model."""
    if is_bls(entry):
        steps = read_bls(entry)
        return tuple(dict.fromkeys(filter(None, (steps.text, steps.engine, steps.detokenize, steps.draft))))
    return tuple(sorted({step.model for step in entry.steps}))


def assemble(entry: ModelView, called: Mapping[str, ModelView]) -> Models:
    """Find the role of each model behind a configured one.

    Args:
        entry: the configured model.
        called: the models of ``called_models``, by name.
    """
    names = (entry.name, *called)
    if is_bls(entry):
        steps = read_bls(entry)
        engine = called[steps.engine]
        draft = called[steps.draft] if steps.draft else None
        return Models(entry, engine if is_engine(engine) else None, called[steps.text], None, names, draft=draft)
    if not entry.steps:
        return Models(entry, entry if is_engine(entry) else None, None, None, names)
    pipeline = read_pipeline(entry)
    return Models(
        entry,
        called[pipeline.engine.model] if pipeline.engine else None,
        called[pipeline.text.model] if pipeline.text else None,
        pipeline,
        names,
    )
