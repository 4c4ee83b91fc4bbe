"""A checked request to an answer that is ready to run."""

from __future__ import annotations

import asyncio
import dataclasses
import functools

from gateway.bad_request import BadRequestError
from gateway.openai.completions.answer import CompletionAnswer
from gateway.openai.completions.choice import CompletionChoice, PreparedPrompt, Shown
from gateway.openai.completions.plan import CompletionPlan
from gateway.openai.completions.protocol import CompletionRequest
from gateway.serving.served_model import ServedModel
from gateway.web.access_log import RequestRecord

_MOST_TOKENS = 2**20  # of all prompts of a request; each takes some tens of bytes until the last answer ends


async def prepare(
    request: CompletionRequest, plan: CompletionPlan, model: ServedModel, record: RequestRecord
) -> CompletionAnswer:
    """Build every prompt and prepare its generations; nothing is sent yet.

    Args:
        request: as the policies of the model let it pass.
        plan: of its answer.
        model: that is asked.
        record: of the HTTP request.

    Raises:
        BadRequestError: when the engine cannot give what is asked.
        EngineError: when the model is not ready, or a prompt is too long.
    """
    parts = model.parts
    params = request.sampling_params(model.defaults)
    params = dataclasses.replace(params, guide=plan.structure.guide)
    truncation = request.truncation(params)
    shown = Shown.of(request, parts.end_ids)
    choices: list[CompletionChoice] = []
    tokens, most = 0, max(_MOST_TOKENS, parts.max_seq_len)
    for index, source in enumerate(request.sources):
        try:
            then = functools.partial(PreparedPrompt, source)
            prepared = await model.build_prompt(source, then, truncation, params.cache_salt)
        except BadRequestError as error:
            raise _of_element(error, request, index) from None
        tokens += len(prepared.prompt.ids)
        if tokens > most:
            message = f"The prompts of one request may have {most} tokens together; send fewer of them."
            raise BadRequestError(message, "prompt", "array_above_max_length")
        generations = await model.generate(
            prepared.prompt, params, record.request_id, record.started,
            affinity=model.affinity(source, record.session),
        )  # fmt: skip
        choices += [CompletionChoice(running, prepared, shown, parts.tokenizer) for running in generations]
        await asyncio.sleep(0)  # tokenizing many prompts would hold up other requests' tokens
    return CompletionAnswer(request, choices, plan.names)


def _of_element(error: BadRequestError, request: CompletionRequest, index: int) -> BadRequestError:
    """The refusal of one prompt, naming which of several it is."""
    param = error.param or ""
    if len(request.sources) == 1 or not param.startswith("prompt"):
        return error
    return BadRequestError(error.message, f"prompt[{index}]" + param.removeprefix("prompt"), error.code)
