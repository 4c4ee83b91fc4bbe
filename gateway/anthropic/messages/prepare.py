"""A checked request to an answer that is ready to run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gateway.anthropic.messages.answer import MessagesAnswer
from gateway.anthropic.messages.translate import Turn
from gateway.bad_request import BadRequestError
from gateway.generation import PromptTooLongError
from gateway.openai.chat.serving import ChatPlan, prepare_generations
from gateway.serving.served_model import ServedModel
from gateway.web.access_log import RequestRecord


async def prepare(turn: Turn, plan: ChatPlan, model: ServedModel, record: RequestRecord) -> MessagesAnswer:
    """Prepare the answer to a Messages request; see ``prepare_generations``."""
    with turn.translation.renaming(), too_long():
        prepared = await prepare_generations(turn.chat, plan, model, record, clamp=True)
    return MessagesAnswer(turn, prepared, plan.names, record.request_id)


@contextlib.contextmanager
def too_long() -> Iterator[None]:
    """Say of a prompt that is too long what Anthropic says: its clients read the numbers, and compact."""
    try:
        yield
    except PromptTooLongError as error:
        message = f"prompt is too long: {error.tokens} tokens > {error.most} maximum"
        raise BadRequestError(message, code="context_length_exceeded") from None
