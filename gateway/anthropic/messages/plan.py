"""The answer that a Messages request wants: the plan of its chat request, in the client's own names."""

from __future__ import annotations

import dataclasses

from gateway.anthropic.messages.translate import Turn
from gateway.openai.chat.plan import ChatPlan, chat_plan
from gateway.serving.served_model import ServedModel


def turn_plan(turn: Turn, model: ServedModel) -> ChatPlan:
    """Decide how the answer to a request is made and checked; see ``chat_plan``."""
    translation = turn.translation
    with translation.renaming():
        plan = chat_plan(turn.chat, model)
    return dataclasses.replace(
        plan,
        names=translation.names(plan.names),
        structure=dataclasses.replace(plan.structure, field=translation.path(plan.structure.field)),
        warnings=[translation.path(path) for path in plan.warnings],
    )
