"""How each request parameter is served by a model of no known kind that takes and answers text, in words for people."""

from __future__ import annotations

from gateway.generation.engine import Capability
from gateway.text.contract import PLAIN_TEXT
from gateway.triton.dialects.tensorrt_llm import GUIDED
from gateway.triton.model_view import ModelView
from gateway.triton.parameters import INPUTS
from gateway.triton.tensors.request_encoder import RequestEncoder

_TEXT_ONLY = "The model returns text without token ids."
_OTHERS = (
    *("n", "ignore_eos", "stop_token_ids", "return_token_ids", "detokenize", "skip_special_tokens", "cached_tokens"),
    *("use_beam_search", "early_stopping", "use_draft_logits", "prompt_token_ids", "cache_salt", "lora", "suffix"),
)
_OF_IDS = ("stop_token_ids", "return_token_ids", "detokenize", "skip_special_tokens", "logprobs", "top_logprobs")


def plain_capabilities(model: ModelView) -> dict[str, Capability]:
    """Decide for every request parameter that depends on the engine how it is served.

    Args:
        model: that takes and answers text.

    Returns:
        A capability by the name of OpenAI's parameter or of the extension.
    """
    encoder = RequestEncoder(model, PLAIN_TEXT)

    def by(tensor: str) -> Capability:
        if not encoder.declares(tensor):
            return Capability("impossible", f"The Triton model {model.name!r} has no input {tensor}.")
        if misfit := encoder.misfit(tensor):
            return Capability(
                "impossible", f"The Triton model {model.name!r} declares the input with other types: {misfit}."
            )
        return Capability("native", f"By the model's input {tensor}, whose meaning the model defines.")

    names = {tensor.name for tensor in PLAIN_TEXT.inputs}
    missing = f"The Triton model {model.name!r} has no input for it."
    found = {name: Capability("impossible", missing) for name in (*INPUTS, *_OTHERS)}
    found |= {name: by(encoder.tensor(name)) for name in INPUTS if encoder.tensor(name) in names}
    found |= dict.fromkeys(_OF_IDS, Capability("impossible", _TEXT_ONLY))
    found |= dict.fromkeys(GUIDED, Capability("impossible", f"{missing[:-1]}; describe the format in a message."))
    return found | {
        "max_tokens": by("max_tokens"),
        "max_completion_tokens": by("max_tokens"),
        "seed": by("seed"),
        **_by_gateway(model),
    }


def _by_gateway(model: ModelView) -> dict[str, Capability]:
    ends = "which then cancels the request" if model.decoupled else "which cuts an answer that is not streamed"
    stream = Capability("native", "By decoupled responses, each with the new text.")
    if not model.decoupled:
        stream = Capability("emulated", "The model returns one response: the stream has the whole text in one event.")
    return {
        "n": Capability("emulated", "As parallel requests."),
        "stream": stream,
        "stop": Capability("emulated", f"Matched on the text in the gateway, {ends}."),
        "include_stop_str_in_output": Capability(
            "emulated", "The gateway cuts the answer after the stop instead of before it."
        ),
        "echo": Capability("emulated", "The gateway puts the prompt before the answer; without log-probs only."),
    }
