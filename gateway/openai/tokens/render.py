"""A chat request made visible: the prompt, its token ids, and the tensors that would be sent."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gateway.bad_request import BadRequestError
from gateway.generation import Describing, EngineFeatures, GenerationRequest
from gateway.openai.chat.beginning import begin_answer
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.turn import ChatTurn
from gateway.serving import prompts
from gateway.serving.model import ServedModel
from gateway.serving.prompt_source import ChatPrompt
from gateway.web.record import RequestRecord


async def render_chat(
    request: ChatCompletionRequest, source: ChatPrompt, turn: ChatTurn | None, model: ServedModel, record: RequestRecord
) -> bytes:
    """Do all that a chat does up to the call of the engine, and show it as a JSON object.

    Args:
        request: as the policies of the model let it pass.
        source: of its prompt.
        turn: what it wants beyond plain text.
        model: that is asked.
        record: of the HTTP request.

    Raises:
        EngineError: when the model is not ready, the prompt is too long, or the request cannot be encoded.
        BadRequestError: when the engine does not show its requests, or cannot give what is asked.
        TemplateError: when the chat template refuses the messages.
    """
    record.names = request.names(turn.guided_by if turn else None)
    generations = (await begin_answer(request, source, turn, model, record)).generations
    engine = model.engine
    if not isinstance(engine, Describing):
        raise BadRequestError("The engine of this model does not show its requests.", param="model")
    seeds = [generation.request.seed for generation in generations]
    write = functools.partial(_write, generations[0].request, seeds, engine.describe, engine.features, model)
    work = prompts.work_of(len(generations[0].request.prompt.ids))
    return write() if work is None else await work.run(write)


def _write(
    first: GenerationRequest,
    seeds: Sequence[int],
    tensors: Callable[[GenerationRequest], list[dict[str, Any]]],
    features: EngineFeatures,
    model: ServedModel,
    left: threading.Event | None = None,
) -> bytes:
    del left
    prompt = first.prompt
    return orjson.dumps(
        {
            "object": "chat.completion.render",
            "model": model.name,
            "prompt": prompt.text,
            "prompt_token_ids": prompt.ids,
            "count": len(prompt.ids),
            "max_model_len": model.parts.max_seq_len,
            "max_tokens": first.max_tokens,
            "seeds": seeds,
            "path": features.path,
            "triton_model": features.model,
            "tensors": tensors(first),
        }
    )
