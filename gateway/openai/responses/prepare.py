"""A checked request to an answer that is ready to run."""

from __future__ import annotations

from gateway.openai.chat.serving import ChatPlan, prepare_generations
from gateway.openai.responses.answer import ResponsesAnswer
from gateway.openai.responses.echo import echoed
from gateway.openai.responses.translate import Turn
from gateway.serving.served_model import ServedModel
from gateway.web.access_log import RequestRecord


async def prepare(turn: Turn, plan: ChatPlan, model: ServedModel, record: RequestRecord) -> ResponsesAnswer:
    """Prepare the answer to a Responses request; see ``prepare_generations``."""
    with turn.translation.renaming():
        prepared = await prepare_generations(turn.chat, plan, model, record, clamp=True)
    return ResponsesAnswer(turn, prepared, plan.names, echoed(turn, model.defaults))
