"""How each request parameter is served by the stock model of the LLM API, in words for people."""

from __future__ import annotations

from gateway.generation.engine import Capability
from gateway.text.contract import LLMAPI
from gateway.triton.dialects.tensorrt_llm import GUIDED
from gateway.triton.llmapi_dialect import LlmApiDialect
from gateway.triton.model_view import ModelView
from gateway.triton.parameters import INPUTS
from gateway.triton.tensors.request_encoder import RequestEncoder

_NO_INPUT = "The LLM API's model in Triton has no input for it."
_TEXT_ONLY = "The LLM API's model returns text without token ids."
_NO_LOGPROBS = "The LLM API's model returns text without token ids and log-probs."
_NO_DRAFTS = "The LLM API's model does not accept draft tokens; speculative decoding is configured in its model.yaml."
_NO_BEAMS = "The LLM API's model does not return the beams; use `n` instead."

# In place of the sentence on the missing input.
_MISSING = {
    "stop_token_ids": f"{_TEXT_ONLY[:-1]}; use `stop` with a text.",
    "ignore_eos": "The LLM API's model always stops at its end token.",
    "skip_special_tokens": "The LLM API's model leaves special tokens out of its text.",
    "prompt_token_ids": "Prompts are sent to the LLM API's model as text.",
    "cached_tokens": "The LLM API's model reports blocks without their size.",
    "prompt_table": "Virtual tokens cannot be sent as text.",
    "cache_salt": f"{_NO_INPUT[:-1]}; set enable_block_reuse to false in its model.yaml.",
    "suffix": "The engine continues text and cannot fill a gap; put the context into the prompt.",
    **dict.fromkeys(("return_token_ids", "detokenize"), _TEXT_ONLY),
    **dict.fromkeys(("logprobs", "top_logprobs", "prompt_logprobs"), _NO_LOGPROBS),
    **dict.fromkeys(("prediction", "num_draft_tokens", "use_draft_logits"), _NO_DRAFTS),
    **dict.fromkeys(("use_beam_search", "length_penalty", "early_stopping"), _NO_BEAMS),
}
_NOTES = {
    "temperature": "0 is greedy, by top_k 1; other values are sent with top_p, which some versions need for sampling",
    "seed": "repeatable at best for a single request: the engine's sampler mixes the seeds of a batch",
}


def llmapi_capabilities(model: ModelView, dialect: LlmApiDialect) -> dict[str, Capability]:
    """Decide for every request parameter that depends on the engine how it is served.

    Args:
        model: the LLM API's.
        dialect: the way to ask it.

    Returns:
        A capability by the name of OpenAI's parameter or of the extension.
    """
    encoder = RequestEncoder(model, LLMAPI)

    def by(tensor: str, note: str = "", limit: int | None = None) -> Capability:
        if not encoder.declares(tensor):
            return Capability("impossible", f"The Triton model {model.name!r} has no input {tensor}.")
        if misfit := encoder.misfit(tensor):
            return Capability(
                "impossible", f"The Triton model {model.name!r} declares the input with other types: {misfit}."
            )
        return Capability("native", f"By the engine's input {tensor}{'; ' + note if note else ''}.", limit)

    names = {tensor.name for tensor in LLMAPI.inputs}
    taken = {name: encoder.tensor(name) for name in INPUTS if encoder.tensor(name) in names}
    length = by("sampling_param_max_tokens")
    found = {name: Capability("impossible", _MISSING.get(name, _NO_INPUT)) for name in (*INPUTS, *_MISSING)}
    found |= {
        name: by(tensor, _NOTES.get(name, INPUTS[name].note), INPUTS[name].limit) for name, tensor in taken.items()
    }
    found |= {
        "max_tokens": length,
        "max_completion_tokens": length,
        "seed": by("sampling_param_seed", _NOTES["seed"]),
        "lora": by("lora_id"),
        "stream": _stream(dialect),
        **_by_gateway(dialect),
        **dict.fromkeys(GUIDED, Capability("impossible", "The LLM API's model has no inputs for guided decoding.")),
    }
    return found | {name: Capability("impossible", why) for name, why in dialect.ignored.items()}


def _stream(dialect: LlmApiDialect) -> Capability:
    if dialect.streams:
        return Capability("native", "By decoupled responses.")
    return Capability("emulated", "The model returns one response: the stream has the whole text in one event.")


def _by_gateway(dialect: LlmApiDialect) -> dict[str, Capability]:
    stop = "Matched on the text in the gateway, which then ends the request"
    if not dialect.streams:
        stop = "The gateway cuts the text; the engine generates the rest of the answer"
    elif not dialect.cancels:
        stop += ", but not in the engine, which continues to the end"
    return {
        "n": Capability("emulated", "As parallel engine requests."),
        "stop": Capability("emulated", f"{stop}."),
        "include_stop_str_in_output": Capability(
            "emulated", "The gateway cuts the answer after the stop instead of before it."
        ),
        "echo": Capability("emulated", "The gateway puts the prompt before the answer; without log-probs only."),
    }
