"""The facts about a chat template that decide how a conversation is handed to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Keys of a message under which templates look for reasoning."""

REASONING_PART = "part"
"""In place of a key: reasoning is a content part ``{"type": "thinking", "thinking": ...}``, as Ministral 3 has it."""


@dataclass(frozen=True, slots=True)
class TemplateAbilities:
    """The way one template takes a conversation, with tool definitions or without; ``probing`` finds it out.

    Roles are those of messages: system, user, assistant, tool. The defaults fit most templates.

    Attributes:
        developer: whether the role developer means something to it; elsewhere such messages are system messages.
        several_systems: whether it shows each of several system messages at the beginning; elsewhere they are one.
        late_systems: whether it shows a system message after others; elsewhere it goes to the beginning.
        system_in_calls: whether it shows the system message when a result comes last; elsewhere, as with the first
            Mistral models, it is a paragraph of the last user message then.
        hides_system: whether it leaves out every system message without a word.
        names: roles whose messages may have a ``name`` because it is shown.
        reads_parts: roles whose content it also reads as a list of text parts.
        needs_parts: roles whose content it reads as nothing else.
        calls: whether it shows a call and its result; elsewhere both are in plain form.
        arguments: whether arguments are an object or JSON text.
        short_ids: whether ids of calls must have nine letters and digits.
        null_content: whether the content of a message with calls and without text is null instead of empty.
        result_names: whether a result has the name of its tool; some templates need it, others refuse it.
        several_calls: whether several calls stay together in one message, come one by one, or are in plain form.
        text_with_calls: whether text stays in the message of the calls, goes before it, or is in plain form with them.
        plain_results: role of the message that holds results in plain form.
        reasoning: the key of a message's reasoning, or ``REASONING_PART``; None: reasoning has no place.
        null_reasoning: whether a message without reasoning needs its keys nevertheless, as null.
    """

    developer: bool = False
    several_systems: bool = True
    late_systems: bool = True
    system_in_calls: bool = True
    hides_system: bool = False
    names: frozenset[str] = frozenset()
    reads_parts: frozenset[str] = frozenset()
    needs_parts: frozenset[str] = frozenset()
    calls: bool = True
    arguments: Literal["object", "text"] = "object"
    short_ids: bool = False
    null_content: bool = False
    result_names: bool = True
    several_calls: Literal["together", "apart", "plain"] = "together"
    text_with_calls: Literal["beside", "before", "plain"] = "beside"
    plain_results: Literal["tool", "user"] = "tool"
    reasoning: str | None = None
    null_reasoning: bool = False
