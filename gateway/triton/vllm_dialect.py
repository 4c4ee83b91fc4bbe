"""Decides how a model of Triton's vLLM backend is requested, by what it declares (wire contract 10).

Triton reports neither the backend's version nor vLLM's. Versions are distinguished by the inputs, and by one probe for
guides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.generation.request import GenerationRequest
from gateway.text.guides.guide import GuideKind
from gateway.triton.model_view import ModelView

_OF_IDS = frozenset({"return_logprobs", "return_num_output_tokens", "return_finish_reason"})
_OF_IDS_ANSWERED = frozenset({"logprobs", "num_output_tokens", "finish_reason"})


@dataclass(frozen=True, slots=True)
class SamplingKey:
    """A sampling parameter, which has the same name here, in requests and in vLLM.

    Attributes:
        off: the value that is not sent.
        note: how vLLM takes it, for the capability map.
    """

    off: float
    note: str = ""


_GENERATED = "vLLM counts the tokens of the answer, like OpenAI"

SAMPLING_KEYS: Mapping[str, SamplingKey] = {
    "top_p": SamplingKey(1.0),
    "top_k": SamplingKey(0),
    "min_p": SamplingKey(0.0),
    "presence_penalty": SamplingKey(0.0, _GENERATED),
    "frequency_penalty": SamplingKey(0.0, _GENERATED),
    "repetition_penalty": SamplingKey(1.0, "vLLM counts the tokens of the prompt too"),
    "min_tokens": SamplingKey(0),
}
"""Those that are sent as they are; the others stand where they are written (``dialects/vllm.py``)."""

RANDOMNESS = ("top_p", "top_k", "min_p")
"""Those without which a greedy request goes."""

GUIDE_FIELDS = ("structured_outputs", "guided_decoding")
"""The sampling parameter for guides: of the backend from 25.11 on, and of 25.01 to 25.10."""

GUIDE_KEYS: Mapping[GuideKind, str] = {
    "json": "json_object",
    "json_schema": "json",
    "regex": "regex",
    "ebnf_grammar": "grammar",
}
"""In it the key of each kind of guide. Structural tags are left out: vLLM's are of other forms, version by version."""


@dataclass(frozen=True, slots=True)
class VllmDialect:
    """The way to ask one model.

    Attributes:
        token_ids: whether answers carry token ids where something depends on them: as keys of their log-probs.
        counts: whether it counts tokens.
        finishes: whether it says why an answer ended.
        guide_field: the sampling parameter that takes guides; None where none does.
    """

    token_ids: bool
    counts: bool
    finishes: bool
    guide_field: str | None

    def needs_ids(self, request: GenerationRequest) -> bool:
        """Whether a request is answered by token ids, which costs vLLM the log-probs of each token."""
        params = request.params
        return self.token_ids and bool(
            params.logprobs
            or params.return_token_ids
            or params.stop_token_ids
            or params.visible_ids
            or params.min_tokens
            or not params.skip_special_tokens
        )

    def losses(self) -> tuple[str, ...]:
        """What is lost of an answer here, a sentence each."""
        found = []
        if not self.counts:
            found.append(
                "the backend before 24.12 does not report token counts: usage is counted by tokenizing the text again"
            )
        if not self.finishes:
            found.append(
                "the backend before 24.12 does not report finish reasons: finish_reason is derived from the "
                "estimated count"
            )
        if self.token_ids:
            found.append("completion tokens are estimated where a stop string cuts a response of several of them")
        return tuple(found)


def read_vllm(model: ModelView, guide_field: str | None) -> VllmDialect:
    """Tell by what the model declares how it is asked.

    Args:
        model: of the vLLM backend.
        guide_field: that was found to take guides.
    """
    return VllmDialect(
        token_ids=model.inputs >= _OF_IDS and model.outputs >= _OF_IDS_ANSWERED,
        counts="return_num_output_tokens" in model.inputs and "num_output_tokens" in model.outputs,
        finishes="return_finish_reason" in model.inputs and "finish_reason" in model.outputs,
        guide_field=guide_field,
    )


def guide_fields(model: ModelView) -> tuple[str, ...]:
    """The sampling parameters that may take guides, the likelier first; none of a backend that is older than both."""
    if "return_finish_reason" not in model.inputs:  # came with 24.12
        return ()
    return GUIDE_FIELDS if "embedding_request" in model.inputs else GUIDE_FIELDS[::-1]  # came with 25.12
