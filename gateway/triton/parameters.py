"""Request parameters and the input tensors that they become: one table for writing them and for telling what is served.

What else there is to a parameter, such as the traps of sampling (wire contract 2.1), stands where it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_COUNTS_PROMPT = "the engine counts the tokens of the prompt too, which OpenAI does not"


@dataclass(frozen=True, slots=True)
class ParameterInput:
    """The tensor of a request parameter.

    Attributes:
        tensors: its names: a model has one of them, the engine's, the ensemble's or the LLM API's; or others do in its
            place.
        off: the value that is not sent; None where more than the value decides.
        note: how the engine takes it, for the capability map.
        limit: the largest value that it takes.
        missing: what to say of a model without it, in place of the tensor's name.
    """

    tensors: tuple[str, ...]
    off: float | None = None
    note: str = ""
    limit: int | None = None
    missing: str = ""


INPUTS: Mapping[str, ParameterInput] = {
    "temperature": ParameterInput(
        ("temperature", "sampling_param_temperature"),
        note="0 is greedy, by top_k 1",
        missing="The Triton model has no input temperature or does not forward it; send 0 (greedy) or 1.",
    ),
    "top_p": ParameterInput(("runtime_top_p", "top_p", "sampling_param_top_p")),
    "top_k": ParameterInput(("runtime_top_k", "top_k", "sampling_param_top_k"), limit=1024),
    "presence_penalty": ParameterInput(("presence_penalty", "sampling_param_presence_penalty"), 0.0, _COUNTS_PROMPT),
    "frequency_penalty": ParameterInput(("frequency_penalty", "sampling_param_frequency_penalty"), 0.0, _COUNTS_PROMPT),
    "repetition_penalty": ParameterInput(("repetition_penalty",), 1.0, _COUNTS_PROMPT),
    "min_p": ParameterInput(
        ("min_p",),
        0.0,
        missing="TensorRT-LLM's models in Triton have no input min_p; use `top_p` or `top_k`.",
    ),
    "min_tokens": ParameterInput(
        ("min_tokens",),
        0,
        "it only suppresses the first end id; until min_tokens no other end id, stop id or stop string ends the answer",
    ),
    "length_penalty": ParameterInput(("len_penalty", "length_penalty"), note="only with beam search"),
    "bad_words": ParameterInput(
        ("bad_words_list", "bad_words"),
        note=(
            "each word is banned as its usual token sequences, at the start of a text and after a space, not as "
            "unusual token sequences"
        ),
    ),
    "stop": ParameterInput(("stop_words_list",)),
    "logit_bias": ParameterInput(("embedding_bias",)),
    "logprobs": ParameterInput(("return_log_probs", "return_generation_logits")),
    "top_logprobs": ParameterInput(("num_top_log_probs",)),
    "prompt_logprobs": ParameterInput(("num_prompt_log_probs", "return_context_logits")),
    "prompt_table": ParameterInput(("prompt_embedding_table",)),
    "prediction": ParameterInput(("draft_input_ids",)),
    "num_draft_tokens": ParameterInput(("num_draft_tokens",)),
}
"""By request parameter. Those with a value that is not sent are sent as they are whenever they have another one."""

_PARAMETERS = {tensor: name for name, each in INPUTS.items() for tensor in each.tensors}


def parameter_of(tensor: str) -> str | None:
    """The request parameter that becomes a tensor of this name; None for what no request asks for."""
    return _PARAMETERS.get(tensor)
