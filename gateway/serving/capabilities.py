"""Tells how a served model serves each parameter, and what its answers lose as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.generation import Capability, EngineFeatures
from gateway.serving.loading import ModelParts
from gateway.serving.tokenizer_match import compared
from gateway.settings import ModelSettings
from gateway.text.families import ToolPlan
from gateway.text.families.family_choice import EXAMPLE
from gateway.text.families.model_family import ends_thoughts, writes_calls
from gateway.text.prompt import TemplateError, history

_END = "Make it the eos_token of the checkpoint's tokenizer_config.json."
_MESSAGES = ({"role": "user", "content": "a"},)


def text_losses(parts: ModelParts, features: EngineFeatures) -> dict[str, str]:
    """Say what answers lose as text; nothing for token ids. See ``EngineFeatures.losses``.

    Args:
        parts: of the model.
        features: of its engine.
    """
    said = dict.fromkeys((*_beginning(parts, features), *_reasoning(parts, features)), "")
    return dict.fromkeys(_ends(parts, features), _END) | said


def hidden_markers(parts: ModelParts, features: EngineFeatures, plan: ToolPlan) -> list[str]:
    """The markers that the family needs in an answer and that the engine leaves out of its text."""
    if not features.hides_special_tokens or features.token_ids:
        return []
    tokenizer = parts.tokenizer
    ids = ((text, tokenizer.token_id(text)) for text in sorted(parts.family.prepare(plan).special))
    return [text for text, index in ids if index is not None and tokenizer.is_special(index)]


def _ends(parts: ModelParts, features: EngineFeatures) -> Iterator[str]:
    tokenizer = parts.tokenizer
    if not features.ends_at_eos or tokenizer.eos_token is None:
        return
    own = tokenizer.token_id(tokenizer.eos_token)
    unseen = [tokenizer.token_text(index) for index in parts.end_ids if index != own and tokenizer.is_special(index)]
    if unseen:
        yield (
            f"the engine stops only at {tokenizer.eos_token} and leaves {', '.join(unseen)} out of its text, so that "
            "answers may not stop where they should"
        )


def _beginning(parts: ModelParts, features: EngineFeatures) -> Iterator[str]:
    """Compare what the engine makes of a small conversation's text with what the template wants."""
    if not features.adds_special_tokens:
        return
    template = parts.template(tools=False)
    try:
        prompt = parts.prompts.build(history(_MESSAGES, template.abilities(tools=False)))
    except TemplateError:
        return
    if parts.prompts.as_read(prompt, frames=True).ids != prompt.ids:
        yield (
            "the engine does not read prompts as the chat template writes them: its tokenizer adds special tokens or "
            "reads the start of a text differently; usage counts the tokens that the engine reads"
        )


def _reasoning(parts: ModelParts, features: EngineFeatures) -> Iterator[str]:
    hidden = hidden_markers(parts, features, ToolPlan()) if parts.family.reasons else []
    if hidden:
        yield f"reasoning is part of the answer because the engine leaves {', '.join(hidden)} out of its text"


_TEMPLATE_READS = {
    "reasoning_effort": "passed to the chat template.",
    "documents": "passed to the chat template.",
}


_CHECKABLE = (
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_choice",
    "json_schema",
    "tool_choice",
    "function_call",
)
_OF_USAGE = ("stream_options.include_usage", "stream_options.continuous_usage_stats")
_CHECKED = Capability("emulated", "the complete answer is checked, and the request fails if the answer does not match.")
_NO_FORMAT = (
    "the format of this model's tool calls is unknown; set `family` in its settings (or with `gateway up --family`), "
    "or require a call with `tool_choice` if its engine has guided decoding."
)
_NOT_SHOWN = (
    "the chat template of this model does not support tools; set `template` in its settings (or with `gateway up "
    "--template`) to a template with tools, or require a call with `tool_choice` if its engine has guided decoding."
)


def capabilities(features: EngineFeatures, parts: ModelParts, settings: ModelSettings) -> dict[str, Capability]:
    """Map parameters to how they are served; others are served as the table of parameters says.

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
    found["tokenizer"] = compared(features)
    found |= _tools(parts, features)
    found["thinking_token_budget"] = _thinking(parts, features)
    if queues(settings):
        found["priority"] = Capability(
            "emulated", "by the queue of the gateway, among the requests of the same caller."
        )
    if settings.structured_output_without_guidance == "validate":
        unguided = [name for name in _CHECKABLE if name not in found or found[name].how == "impossible"]
        found |= dict.fromkeys(unguided, _CHECKED)
    return found | _answers(features, found)


def queues(settings: ModelSettings) -> bool:
    """Tell whether requests may have to wait for their turn."""
    most = settings.admission.max_running
    return bool(most) or (most is None and settings.triton.metrics_url is not None)


def _thinking(parts: ModelParts, features: EngineFeatures) -> Capability:
    """The capability to bound the reasoning."""
    if not parts.family.reasons:
        return Capability("impossible", "this model does not reason, according to its family.")
    if not ends_thoughts(parts.family):
        return Capability("impossible", "the token that ends this model's reasoning is unknown.")
    if not (features.prompt_ids and features.token_ids):
        return Capability("impossible", "prompts or answers are sent as text, which cannot be continued exactly.")
    return Capability("emulated", "the gateway ends the reasoning and continues with a second request to the engine.")


def _answers(features: EngineFeatures, known: Mapping[str, Capability]) -> dict[str, Capability]:
    """The capabilities that depend on the form of the engine's responses."""
    found: dict[str, Capability] = {}
    ranked = known.get("logprobs")
    if ranked is not None and ranked.how == "impossible":
        found["best_of"] = ranked
    elif ranked is not None and ranked.truncated:
        how = "candidates are generated in parallel and ranked by the log-probs of their tokens."
        found["best_of"] = Capability("emulated", how, truncated=ranked.truncated)
    if not features.token_ids:
        found |= dict.fromkeys(_OF_USAGE, Capability("emulated", _usage(features)))
    return found


def _usage(features: EngineFeatures) -> str:
    if "completion_tokens" not in features.estimates:
        return "counted by the engine."
    return (
        "counted by tokenizing the answer again if the engine does not report it, and then marked by "
        "completion_tokens_details.estimated."
    )


def _tools(parts: ModelParts, features: EngineFeatures) -> dict[str, Capability]:
    """The capability for tools that the model is free to call."""
    if hidden := hidden_markers(parts, features, ToolPlan((EXAMPLE,), "auto")):
        how = Capability(
            "impossible", f"the engine leaves the markers of tool calls out of its text: {', '.join(hidden)}."
        )
    elif not parts.template(tools=True).shows_tools:
        how = Capability("impossible", _NOT_SHOWN)
    elif not writes_calls(parts.family):
        how = Capability("impossible", _NO_FORMAT)
    else:
        how = Capability(
            "emulated", f"shown by the chat template; tool calls are parsed in the format of {parts.family.name}."
        )
    return dict.fromkeys(("tools", "functions"), how)
