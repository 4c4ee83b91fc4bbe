"""What a chat request becomes: the prompt, its token ids, and the tensors that would be sent."""

from __future__ import annotations

from typing import Any

from gateway.generation import Describing
from gateway.openai.chat.beginning import begin_answer
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.turn import chat_turn
from gateway.openai.errors import OpenAIError
from gateway.serving.model import ServedModel
from gateway.web.record import RequestRecord


async def render_chat(request: ChatCompletionRequest, model: ServedModel, record: RequestRecord) -> dict[str, Any]:
    """Do all that a chat does up to the call of the engine, and show it.

    Args:
        request: as the policies of the model let it pass.
        model: that is asked.
        record: of the HTTP request.

    Raises:
        EngineError: when the model is not ready, the prompt is too long, or the request cannot be encoded.
        OpenAIError: 400 when the engine does not show its requests.
        RefusedError: when the engine cannot give what is asked.
        TemplateError: when the chat template refuses the messages.
    """
    turn = chat_turn(request, model)
    record.names = request.names(turn.guided_by if turn else None)
    generations = (await begin_answer(request, turn, model, record)).generations
    engine = model.engine
    if not isinstance(engine, Describing):
        raise OpenAIError(400, "The engine of this model does not show its requests.", param="model")
    first = generations[0].request
    prompt = first.prompt
    return {
        "object": "chat.completion.render",
        "model": model.name,
        "prompt": prompt.text,
        "prompt_token_ids": list(prompt.ids),
        "count": len(prompt.ids),
        "max_model_len": model.parts.max_seq_len,
        "max_tokens": first.max_tokens,
        "seeds": [generation.request.sampling.seed for generation in generations],
        "path": engine.features.path,
        "triton_model": engine.features.model,
        "tensors": engine.describe(first),
    }
