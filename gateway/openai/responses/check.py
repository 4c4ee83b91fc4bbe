"""A Responses request against what its model can do."""

from __future__ import annotations

import dataclasses

from gateway.openai.chat.serving import check_chat
from gateway.openai.parameters.check import Ignored
from gateway.openai.responses.translate import Turn
from gateway.serving.served_model import ServedModel


def check_turn(turn: Turn, model: ServedModel) -> tuple[Turn, Ignored]:
    """The request without what the policies let pass unserved, and what it is served without.

    Raises:
        EngineError: UNAVAILABLE while it is not known what the model can do.
        BadRequestError: for a parameter that the model cannot serve, by policy.
    """
    with turn.translation.renaming():
        chat, ignored = check_chat(turn.chat, model)
    turn = dataclasses.replace(turn, chat=chat)
    return turn, turn.ignored(ignored)
