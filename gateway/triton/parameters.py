"""The table of request parameters that engines may serve: neutral values, tensors and groups.

Requests are written by it, and each dialect says by it what it serves. Further rules of a parameter, such as the traps
of sampling (wire contract 2.1), stand where it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from gateway.generation.engine import Capability
from gateway.text.guides.guide import GuideKind

_COUNTS_PROMPT = "the engine counts the tokens of the prompt too, which OpenAI does not"


@dataclass(frozen=True, slots=True)
class ParameterInput:
    """The tensor of a request parameter.

    Attributes:
        tensors: its names, of which a model has one: the engine's, the ensemble's or the LLM API's.
        neutral: the value that changes nothing and is not sent; None where more than the value decides.
        trap: whether more than the value decides if TensorRT-LLM gets it.
        note: how the engine takes it, for the capability map.
        limit: the largest value that it takes.
        missing: what to say of a model without it, in place of the tensor's name.
    """

    tensors: tuple[str, ...]
    neutral: float | None = None
    note: str = ""
    limit: int | None = None
    missing: str = ""
    trap: bool = False


INPUTS: Mapping[str, ParameterInput] = {
    "temperature": ParameterInput(
        ("temperature", "sampling_param_temperature"),
        note="0 is greedy, by top_k 1",
        missing="The Triton model has no input temperature or does not forward it; send 0 (greedy) or 1.",
    ),
    "top_p": ParameterInput(("runtime_top_p", "top_p", "sampling_param_top_p"), 1.0, trap=True),
    "top_k": ParameterInput(("runtime_top_k", "top_k", "sampling_param_top_k"), 0, limit=1024, trap=True),
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
    "seed": ParameterInput(("seed", "sampling_param_seed")),
    "cache_salt": ParameterInput(
        ("cache_salt",),
        missing="TensorRT-LLM's models in Triton have no input for it; set enable_kv_cache_reuse to false.",
    ),
}
"""By request parameter. Those with a neutral value are sent as they are whenever they have another one."""

GUIDED: Mapping[str, tuple[GuideKind, ...]] = {
    "response_format": ("json_schema", "json"),
    "structured_outputs": ("json_schema", "json", "regex", "ebnf_grammar", "structural_tag"),
    "guided_json": ("json_schema",),
    "guided_regex": ("regex",),
    "guided_choice": ("regex", "ebnf_grammar"),
    "guided_grammar": ("ebnf_grammar",),
    "json_schema": ("json_schema",),
    "regex": ("regex",),
    "ebnf": ("ebnf_grammar",),
    "grammar": ("ebnf_grammar",),
    "tool_choice": ("json_schema",),
    "function_call": ("json_schema",),
}
"""The kinds of guide that each parameter needs, one of which is enough."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "token ids": ("stop_token_ids", "return_token_ids", "detokenize", "skip_special_tokens"),
    "log-probs": ("logprobs", "top_logprobs"),
    "length": ("max_tokens", "max_completion_tokens"),
    "beams": ("use_beam_search", "length_penalty", "early_stopping"),
    "drafts": ("prediction", "num_draft_tokens", "use_draft_logits"),
    "penalties": ("presence_penalty", "frequency_penalty"),
    "guides": tuple(GUIDED),
    "others": ("ignore_eos", "prompt_token_ids", "cached_tokens", "lora", "suffix"),
}
"""Parameters that a dialect serves, or does not serve, for the same reason."""

FILLS_NO_GAP = Capability(
    "impossible", "The engine continues text and cannot fill a gap; put the context into the prompt."
)
CUT_AFTER_STOP = Capability("emulated", "The gateway cuts the answer after the stop instead of before it.")
_ECHO = Capability("emulated", "The gateway puts the prompt before the answer; without log-probs only.")
ONE_EVENT = Capability("emulated", "The model returns one response: the stream has the whole text in one event.")


def text_capabilities(
    missing: str, impossible: Mapping[str, str], served: Mapping[str, Capability]
) -> dict[str, Capability]:
    """Make the capabilities of a model whose prompts and answers travel as text.

    Args:
        missing: why parameters that are not named are not served.
        impossible: why others are not served, by parameter or by one of ``GROUPS``.
        served: how the rest is served, by parameter or by group.
    """
    by_gateway = {"suffix": FILLS_NO_GAP, "include_stop_str_in_output": CUT_AFTER_STOP, "echo": _ECHO}
    reasons = {name: Capability("impossible", why) for name, why in impossible.items()}
    found = dict.fromkeys((*INPUTS, *chain(*GROUPS.values())), Capability("impossible", missing))
    for name, how in (by_gateway | reasons | {**served}).items():
        found |= dict.fromkeys(GROUPS.get(name, (name,)), how)
    return found


_PARAMETERS = {tensor: name for name, each in INPUTS.items() for tensor in each.tensors}


def parameter_of(tensor: str) -> str | None:
    """The request parameter that becomes a tensor of this name; None without one."""
    return _PARAMETERS.get(tensor)
