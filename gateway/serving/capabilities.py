"""How one served model serves each parameter: what its engine can, its template reads and its operator allows."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config import ModelSettings
from gateway.generation import Capability, EngineFeatures
from gateway.serving.loading import ModelParts

_TEMPLATE_READS = {
    "reasoning_effort": "told to the chat template.",
    "documents": "given to the chat template.",
}


def capabilities(features: EngineFeatures, parts: ModelParts, settings: ModelSettings) -> Mapping[str, Capability]:
    """By name of a parameter how it is served; what is not named is served as the table of parameters says.

    Args:
        features: of the engine.
        parts: of the model.
        settings: of the model.
    """
    found = dict(features.capabilities)
    for name, how in _TEMPLATE_READS.items():
        if name in parts.prompts.template.variables:
            found[name] = Capability("emulated", how)
    if settings.allow_request_template:
        found["chat_template"] = Capability("emulated", "compiled for the request, in a sandbox.")
    if not features.logprobs:
        missing = Capability("impossible", "this model's engine gives no log-probs.")
        found |= dict.fromkeys(("logprobs", "top_logprobs", "best_of"), missing)
    elif not features.max_top_logprobs:
        found["top_logprobs"] = Capability("impossible", "this model's engine gives no alternatives per token.")
    if not features.token_ids:
        missing = Capability("impossible", "this model's engine answers with text only.")
        found |= dict.fromkeys(("return_token_ids", "skip_special_tokens"), missing)
    else:
        for name in ("return_token_ids", "skip_special_tokens"):
            found.setdefault(name, Capability("emulated", "from the token ids of the answer."))
    return found
