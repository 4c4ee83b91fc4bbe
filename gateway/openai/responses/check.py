"""A Responses request against what its model can do."""

from __future__ import annotations

import dataclasses

from gateway.bad_request import BadRequestError
from gateway.openai.chat.check import check_chat
from gateway.openai.chat.plan import chat_plan
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
    return turn, turn.ignored(ignored, _described(turn, model))


def _described(turn: Turn, model: ServedModel) -> list[str]:
    """Hold custom tools to their regular expressions; where the engine cannot, name the formats that are only shown."""
    functions = [turn.chat.tools[place].function for place in turn.tools.regexes if turn.chat.tools]
    for function in functions:
        function.strict = True
    if not functions or _guided(turn, model):
        return []
    for function in functions:
        function.strict = False
    return [f"{turn.tools.paths[place]}.format" for place in turn.tools.regexes]


def _guided(turn: Turn, model: ServedModel) -> bool:
    """Whether the engine is held to each call that the model may make."""
    try:
        plan = chat_plan(turn.chat, model)
    except BadRequestError:
        return False
    return plan.turn is not None and plan.turn.calls and model.parts.family.prepare(plan.turn, "").guided
