"""Sources of a prompt, as endpoints hand them to a served model, and how a prompt is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from gateway.records import dataclass


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, rendered by the model's chat template.

    Attributes:
        messages: as of ``prompt.history``: role, content as text, and whatever else templates read; ``parts`` of a
            content that has several; arguments of calls as JSON text, reasoning of the assistant under ``reasoning``.
        tools: definitions of tools, for templates that show them.
        documents: documents, for templates that cite them.
        add_generation_prompt: whether the prompt ends with the opening of the assistant's turn.
        continue_final_message: whether the prompt ends inside the last message, which the answer continues; excludes
            ``add_generation_prompt``.
        template: a Jinja template of the request's own; None takes the model's.
        variables: further names for the template; they replace none of the above.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text as it is; the texts of control tokens in it are control tokens.

    Attributes:
        text: may be empty where the model has a BOS.
        add_special_tokens: whether BOS goes first where the tokenizer has it so; never a second one.
    """

    text: str
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class IdsPrompt:
    """Token ids as they are; nothing is added.

    Attributes:
        ids: in the model's vocabulary, at least one.
    """

    ids: Sequence[int]


PromptSource = ChatPrompt | TextPrompt | IdsPrompt


def spoken(source: PromptSource) -> Sequence[Mapping[str, Any]]:
    """The messages of a source, each with ``role`` and ``content``; none of ids."""
    if isinstance(source, ChatPrompt):
        return source.messages
    return [{"role": "user", "content": source.text}] if isinstance(source, TextPrompt) else []


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a prompt is cut, as vLLM's ``truncate_prompt_tokens`` does it: after the chat template, by tokens.

    Attributes:
        tokens: that are kept at most; -1 is what the context leaves beside the answer.
        side: where the others are cut off. On the left a BOS that the tokenizer adds to a text stays.
        answer: tokens that the answer may have, at least 1.
        answer_name: the request parameter that ``answer`` came from, for refusals.
    """

    tokens: int
    side: Literal["left", "right"] = "left"
    answer: int = 1
    answer_name: str = "max_tokens"
