"""The stock model of the LLM API, of each of its versions: what it does with a request (wire contract 8).

That follows from what it declares. What TensorRT-LLM itself ignores without a word goes by the version, which Triton
does not tell: the operator does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.triton.abilities import EngineOptions
from gateway.triton.model_view import ModelView

TextForm = Literal["whole", "cumulative", "delta"]
"""The text of a response: all of the answer, which has no other; all of it so far; what is new of it."""

# The first release that honours them: before, the sampler of the LLM API's default backend drops them in silence.
_SINCE: Mapping[str, tuple[int, ...]] = {
    "seed": (1, 3),
    "presence_penalty": (1, 3),
    "frequency_penalty": (1, 3),
}
_ENDS_BY_GENERATION_CONFIG = (1, 3)


@dataclass(frozen=True, slots=True)
class LlmApiDialect:
    """The way to ask one model.

    Attributes:
        text: of its responses; ``whole`` where it does not stream.
        adds_special_tokens: whether it puts the tokenizer's special tokens around a prompt's text.
        certain_of_special_tokens: whether that is known; of 0.20 and 0.21 it is not.
        cancels: whether it ends a request in the engine whose gRPC call was cancelled.
        ends_at_eos: whether the tokenizer's own end token alone ends an answer.
        ignored: request parameters that TensorRT-LLM drops or may drop silently, each with the reason of its rejection.
    """

    text: TextForm
    adds_special_tokens: bool
    certain_of_special_tokens: bool
    cancels: bool
    ends_at_eos: bool
    ignored: Mapping[str, str]

    @property
    def streams(self) -> bool:
        """Whether a response comes for each step of the engine."""
        return self.text != "whole"

    def losses(self) -> tuple[str, ...]:
        """What is lost of an answer here, a sentence each."""
        found = ["completion tokens are counted by tokenizing the text again unless the finish reason is length"]
        if not self.streams:
            found.append("the model returns one response, so that a stream has the whole text in one event")
        if not self.cancels:
            found.append("this version ignores cancellation: a cancelled request continues to its end in the engine")
        if not self.certain_of_special_tokens:
            found.append(
                "it is unknown whether this version adds BOS to prompts; the gateway assumes that it does, like 1.0"
            )
        found.append("the Triton model does not check its engine: it stays ready when the engine has failed")
        return tuple(found)


def read_dialect(model: ModelView, options: EngineOptions) -> LlmApiDialect:
    """Tell by the declared inputs which model it is, and by the version what its engine does.

    Upstream's models differ: that of 0.19 has ``sampling_param_beam_width``, those from 1.0 on have ``stop``, and the
    first that passes ``streaming`` on to its engine also has ``lora_id``. The policy decides, not the model's yaml: a
    model that is not decoupled answers once.

    Args:
        model: the LLM API's.
        options: what the operator says.
    """
    current = "stop" in model.inputs
    oldest = "sampling_param_beam_width" in model.inputs
    version = options.version
    return LlmApiDialect(
        text=_text(model, options),
        adds_special_tokens=not oldest,
        certain_of_special_tokens=current or oldest,
        cancels=current,
        ends_at_eos=version is None or version < _ENDS_BY_GENERATION_CONFIG,
        ignored={name: why for name, since in _SINCE.items() if (why := _ignored(version, since))},
    )


def _text(model: ModelView, options: EngineOptions) -> TextForm:
    if not model.decoupled:
        return "whole"
    if options.llmapi_text != "auto":
        return options.llmapi_text
    return "cumulative" if "lora_id" in model.inputs else "whole"


def _ignored(version: tuple[int, ...] | None, since: tuple[int, ...]) -> str | None:
    first = ".".join(map(str, since))
    if version is None:
        told = "and Triton does not report the version; set `engine_version`"
        return f"TensorRT-LLM before {first} silently ignores it, {told}."
    if version < since:
        return f"TensorRT-LLM before {first} silently ignores it, and this version is {'.'.join(map(str, version))}."
    return None
