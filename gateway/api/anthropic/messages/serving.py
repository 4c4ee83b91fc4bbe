"""Checks a Messages request against its model and the model's chat template, and prepares its answer."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence

from gateway.api.anthropic.messages.answer import MessagesAnswer
from gateway.api.anthropic.messages.translate import MessagesTurn
from gateway.api.openai.chat.messages import Message, SystemMessage, TextPart, UserMessage
from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.chat.serving import ChatPlan, check_chat, prepare_generations
from gateway.api.openai.parameters.check import IgnoredParameters
from gateway.api.openai.translation import Translation
from gateway.generation import PromptTooLongError, too_many_tokens
from gateway.http.access_log import RequestRecord
from gateway.serving.generator_model import GeneratorModel
from gateway.text.bad_request import BadRequestError

_SWITCHES = ("enable_thinking", "thinking")  # names by which chat templates ask whether the model shall reason
_MESSAGE = re.compile(r"messages\[(\d+)\]")


def check_turn(turn: MessagesTurn, model: GeneratorModel) -> tuple[MessagesTurn, IgnoredParameters]:
    """Check a request against its model; returns it without ignored parameters, and their names.

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
    if chat.service_tier == "priority" and chat.tier != "priority":  # this model has no queue
        unread = [*unread, "speed"]
    return turn, turn.ignored(ignored, unread)


def _reasoning(turn: MessagesTurn, model: GeneratorModel) -> tuple[ChatCompletionRequest, list[str]]:
    """Return the chat request with the template's switch for reasoning, and the names of what is left out.

    Agents send an effort and a way to think to any model: what the model cannot take or follow is left out.
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


def _unserved(name: str, model: GeneratorModel) -> bool:
    return model.known_capabilities()[name].how == "impossible"


def _systems_placed(
    chat: ChatCompletionRequest, translation: Translation, model: GeneratorModel
) -> tuple[ChatCompletionRequest, Translation]:
    """The chat request with system turns where the template shows them."""
    if chat.chat_template is not None or not any(isinstance(each, SystemMessage) for each in chat.messages[1:]):
        return chat, translation
    tools = bool(chat.tools)
    if model.parts.template(tools=tools).abilities(tools=tools, variables=chat.chat_template_kwargs).late_systems:
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


def folded(messages: Sequence[Message]) -> tuple[list[Message], list[int]]:
    """Move late system turns into user turns: into the turn before, else into the turn behind.

    Where neither is a user turn, above all behind results of tools, the text becomes a user turn.

    Args:
        messages: of a chat request.

    Returns:
        The messages, and for each the place of the one that it was made of.
    """
    made: list[Message | list[TextPart]] = []  # a user's turn is a list of texts, to which later messages may add
    places: list[int] = []
    late = False
    for place, message in enumerate(messages):
        moved = late and isinstance(message, SystemMessage)
        late = late or not isinstance(message, SystemMessage)
        if not (moved or isinstance(message, UserMessage)):
            made.append(message)
            places.append(place)
            continue
        before = made[-1] if made else None
        if isinstance(before, list) and (moved or isinstance(messages[places[-1]], SystemMessage)):
            before += _texts(message)
            places[-1] = places[-1] if moved else place
        else:
            made.append(_texts(message))
            places.append(place)
    return [_user(each, messages[place]) for each, place in zip(made, places, strict=True)], places


def _user(made: Message | list[TextPart], origin: Message) -> Message:
    if not isinstance(made, list):
        return made
    alone = isinstance(origin, UserMessage) and len(made) == len(_texts(origin))
    return origin if alone else UserMessage(role="user", content=made)


def _texts(message: Message) -> list[TextPart]:
    content = message.content
    parts = [TextPart(type="text", text=content)] if isinstance(content, str) else content or ()
    return [part for part in parts if isinstance(part, TextPart)]


async def prepare(turn: MessagesTurn, plan: ChatPlan, model: GeneratorModel, record: RequestRecord) -> MessagesAnswer:
    """Prepare the answer to a Messages request; see ``prepare_generations``."""
    with turn.translation.renaming(), too_long():
        prepared = await prepare_generations(turn.chat, plan, model, record, clamp=True)
    return MessagesAnswer(turn, prepared, plan.names, record.request_id)


@contextlib.contextmanager
def too_long() -> Iterator[None]:
    """Raise the error of a prompt that is too long in Anthropic's words, whose numbers clients read to compact."""
    try:
        yield
    except PromptTooLongError as error:
        raise BadRequestError(too_many_tokens(error.tokens, error.limit), code="context_length_exceeded") from None
