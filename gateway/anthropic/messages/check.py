"""A Messages request against what its model can do."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from gateway.anthropic.messages.systems import folded
from gateway.anthropic.messages.translate import Turn
from gateway.openai.chat.messages import SystemMessage
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.serving import check_chat
from gateway.openai.parameters.check import Ignored
from gateway.openai.translation import Translation
from gateway.serving.served_model import ServedModel

_SWITCHES = ("enable_thinking", "thinking")  # names by which chat templates ask whether the model shall reason
_MESSAGE = re.compile(r"messages\[(\d+)\]")


def check_turn(turn: Turn, model: ServedModel) -> tuple[Turn, Ignored]:
    """The request without what the policies let pass unserved, and what it is served without.

    Raises:
        EngineError: UNAVAILABLE while it is not known what the model can do.
        BadRequestError: for a parameter that the model cannot serve, by policy.
    """
    model.known_capabilities()
    chat, unread = _reasoning(turn, model)
    chat, translation = _systems_placed(chat, turn.translation, model)
    with translation.renaming():
        chat, ignored = check_chat(chat, model)
    turn = dataclasses.replace(turn, chat=chat, translation=translation)
    return turn, turn.ignored(ignored, unread)


def _reasoning(turn: Turn, model: ServedModel) -> tuple[ChatCompletionRequest, list[str]]:
    """The chat request with the switch of the template, and what the model is not told.

    Agents send an effort and how to think whatever the model is: what it cannot be told or held to is left out.
    """
    chat, thinking = turn.chat, turn.request.thinking
    read = model.parts.template(tools=bool(chat.tools)).variables
    if chat.chat_template is not None:
        return chat, []
    left_out: list[str] = []
    if chat.reasoning_effort is not None and "reasoning_effort" not in read:
        chat = chat.model_copy(update={"reasoning_effort": None})
        chat.model_fields_set.discard("reasoning_effort")
        left_out.append("output_config.effort")
    if chat.thinking_token_budget is not None and _unserved("thinking_token_budget", model):
        chat = chat.model_copy(update={"thinking_token_budget": None})
        chat.model_fields_set.discard("thinking_token_budget")
        left_out.append("thinking.budget_tokens")
    if thinking is None:
        return chat, left_out
    wanted = thinking.type != "disabled"
    switches = {name: wanted for name in _SWITCHES if name in read}
    if switches:
        chat = chat.model_copy(update={"chat_template_kwargs": switches | chat.chat_template_kwargs})
        chat.model_fields_set.add("chat_template_kwargs")
    elif wanted != model.parts.family.reasons:
        left_out.append("thinking")
    if thinking.budget_tokens is not None and thinking.type != "enabled":
        left_out.append("thinking.budget_tokens")
    return chat, left_out


def _unserved(name: str, model: ServedModel) -> bool:
    return model.known_capabilities()[name].how == "impossible"


def _systems_placed(
    chat: ChatCompletionRequest, translation: Translation, model: ServedModel
) -> tuple[ChatCompletionRequest, Translation]:
    """The chat request with system turns where the template shows them."""
    if chat.chat_template is not None or not any(isinstance(each, SystemMessage) for each in chat.messages[1:]):
        return chat, translation
    tools = bool(chat.tools)
    if model.parts.template(tools=tools).abilities(tools=tools).late_systems:
        return chat, translation
    messages, places = folded(chat.messages)
    return chat.model_copy(update={"messages": messages}), _moved(translation, places)


def _moved(translation: Translation, places: Sequence[int]) -> Translation:
    """The origins of messages that were joined."""
    new = {place: index for index, place in enumerate(places)}
    parts = {}
    for path, origin in translation.parts.items():
        found = _MESSAGE.match(path)
        if not found:
            parts[path] = origin
        elif int(found[1]) in new:
            parts[f"messages[{new[int(found[1])]}]{path[found.end() :]}"] = origin
    return dataclasses.replace(translation, messages=[translation.messages[place] for place in places], parts=parts)
