"""What an ensemble is made of, by the tensor maps of its steps (contract section 1.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.triton.model_view import ModelView, Step

_ENGINE_INPUTS = frozenset({"input_ids", "input_lengths", "request_output_len"})
_LLMAPI_PREFIX = "sampling_param_"


def is_engine(model: ModelView) -> bool:
    """Whether a model takes and answers token ids as the engine model does."""
    return model.inputs >= _ENGINE_INPUTS and "output_ids" in model.outputs


def is_llmapi(model: ModelView) -> bool:
    """Whether a model is of the LLM API family, which takes text (contract section 1.7)."""
    return "text_input" in model.inputs and any(name.startswith(_LLMAPI_PREFIX) for name in model.inputs)


def is_bls(model: ModelView) -> bool:
    """Whether a model takes an ensemble's inputs without being one (contract section 1.6)."""
    return not model.steps and {"text_input", "max_tokens"} <= model.inputs


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of an ensemble by what they do.

    Attributes:
        text: the step that turns text into token ids, if there is just one.
        engine: the step that generates, if there is just one.
        detokenize: the step that turns token ids into text, if there is just one.
        deviation: why the ensemble is not stock, as the end of a sentence; None when it is.
    """

    text: Step | None
    engine: Step | None
    detokenize: Step | None
    deviation: str | None


def read_pipeline(ensemble: ModelView) -> Pipeline:
    """Find the steps and decide whether the gateway may do the first and last one itself.

    It may when there are just the three and the token ids flow straight from the one to the next: then nothing else
    looks at the prompt or at the answer.
    """
    text = _single(ensemble, lambda step: "QUERY" in step.inputs)
    engine = _single(ensemble, lambda step: set(step.inputs) >= _ENGINE_INPUTS and "output_ids" in step.outputs)
    detokenize = _single(ensemble, lambda step: "TOKENS_BATCH" in step.inputs)
    return Pipeline(text, engine, detokenize, _deviation(ensemble, text, engine, detokenize))


def _deviation(ensemble: ModelView, text: Step | None, engine: Step | None, detokenize: Step | None) -> str | None:
    if engine is None:
        return "not exactly one of its steps takes token ids"
    if text is None or detokenize is None:
        return f"not exactly one of its steps {'takes text' if text is None else 'detokenizes'}"
    others = [step.model for step in ensemble.steps if step not in (text, engine, detokenize)]
    if others:
        return f"it has a step of its own, {others[0]!r}"
    flows = (
        (text.inputs["QUERY"] in ensemble.inputs, "its prompt does not come straight from the request"),
        (
            engine.inputs["input_ids"] == text.outputs.get("INPUT_ID"),
            "its engine's token ids do not come straight from the tokenizing step",
        ),
        (
            detokenize.inputs["TOKENS_BATCH"] == engine.outputs["output_ids"],
            "its detokenizing step does not take the engine's token ids",
        ),
        (detokenize.outputs.get("OUTPUT") in ensemble.outputs, "its text does not go straight into the answer"),
    )
    return next((broken for holds, broken in flows if not holds), None)


def _single(ensemble: ModelView, matches: Callable[[Step], bool]) -> Step | None:
    found = [step for step in ensemble.steps if matches(step)]
    return found[0] if len(found) == 1 else None
