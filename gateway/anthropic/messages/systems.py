"""System turns in the middle of a conversation, for chat templates that have no place for them there."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.openai.chat.messages import Message, SystemMessage, TextPart, UserMessage


def folded(messages: Sequence[Message]) -> tuple[list[Message], list[int]]:
    """The messages with late system turns as text of the user's: of the turn before, else of the one behind.

    Where neither is the user's, behind results above all, the text is a turn of the user's own.

    Args:
        messages: of a chat request.

    Returns:
        The messages, and for each the place of the one that it was made of.
    """
    made: list[Message | list[TextPart]] = []  # turns of the user as their texts, which others may join
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
