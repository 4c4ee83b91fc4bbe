"""What a chat request becomes: the prompt, its token ids, and the tensors that would be sent."""

from __future__ import annotations

from typing import Any

from gateway.generation import Describing
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.errors import OpenAIError
from gateway.serving.model import ServedModel


async def render_chat(
    request: ChatCompletionRequest, model: ServedModel, request_id: str, arrived: float
) -> dict[str, Any]:
    """Do all that a chat does up to the call of the engine, and show it.

    Args:
        request: as the policies of the model let it pass.
        model: that is asked.
        request_id: prefix of the engine's request id.
        arrived: ``time.perf_counter()`` at the arrival of the request.

    Raises:
        EngineError: when the model is not ready, the prompt is too long, or the request cannot be encoded.
        OpenAIError: 400 when the engine does not show its requests.
        RefusedError: when the engine cannot give what is asked.
        TemplateError: when the chat template refuses the messages.
    """
    prompt = await model.build_prompt(request.prompt())
    generations = await model.generate(prompt, request.options(model.parts.defaults), request_id, arrived)
    engine = model.backend.engine
    if not isinstance(engine, Describing):
        raise OpenAIError(400, "The engine of this model does not show its requests.", param="model")
    first = generations[0].request
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
