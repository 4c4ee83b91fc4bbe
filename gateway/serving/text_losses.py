"""Losses of a model's answers where prompts and answers travel as text: by its tokenizer, template and family."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.families import ToolPlan
from gateway.generation import EngineFeatures
from gateway.prompt import TemplateError, history
from gateway.serving.loading import ModelParts

_END = "Make it the eos_token of the checkpoint's tokenizer_config.json."
_MESSAGES = ({"role": "user", "content": "a"},)


def text_losses(parts: ModelParts, features: EngineFeatures) -> dict[str, str]:
    """Say it as ``EngineFeatures.losses`` do; nothing where token ids travel.

    Args:
        parts: of the model.
        features: of its engine.
    """
    said = dict.fromkeys((*_beginning(parts, features), *_reasoning(parts, features)), "")
    return dict.fromkeys(_ends(parts, features), _END) | said


def hidden_markers(parts: ModelParts, features: EngineFeatures, plan: ToolPlan) -> list[str]:
    """Markers that the family must see in an answer, and that the engine leaves out of its text."""
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
            f"the engine ends an answer at {tokenizer.eos_token} alone, and leaves {', '.join(unseen)} out of its text:"
            " an answer that ends with it runs on"
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
            "the engine does not read prompts as the chat template writes them: its tokenizer puts special tokens"
            " around a text, or takes its beginning otherwise; usage counts what it reads"
        )


def _reasoning(parts: ModelParts, features: EngineFeatures) -> Iterator[str]:
    hidden = hidden_markers(parts, features, ToolPlan()) if parts.family.reasons else []
    if hidden:
        yield f"reasoning is shown as part of the answer: the engine leaves {', '.join(hidden)} out of its text"
