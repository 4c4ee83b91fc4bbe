"""A chat request made visible: the prompt, its token ids, and the tensors that would be sent."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gateway.bad_request import BadRequestError
from gateway.generation import Describing, EngineError, EngineFeatures, GenerationRequest
from gateway.openai.chat.answer import ChatAnswer
from gateway.openai.errors import from_engine
from gateway.serving import prompts
from gateway.serving.served_model import ServedModel


async def render(answer: ChatAnswer, model: ServedModel) -> bytes:
    """Show as a JSON object what a chat would send to the engine.

    Args:
        answer: prepared, and never run.
        model: that is asked.

    Raises:
        BadRequestError: when the engine does not show its requests, or cannot give what is asked.
        OpenAIError: when the request cannot be encoded.
    """
    engine = model.engine
    if not isinstance(engine, Describing):
        raise BadRequestError("The engine of this model does not show its requests.", param="model")
    requests = [generation.request for generation in answer.generations]
    seeds = [request.seed for request in requests]
    write = functools.partial(_write, requests[0], seeds, engine.describe, engine.features, model)
    work = prompts.work_of(len(requests[0].prompt.ids))
    try:
        return write() if work is None else await work.run(write)
    except EngineError as error:
        raise from_engine(error, answer.names) from None


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
