"""From a checked request to generations that are ready to run."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from gateway.bad_request import BadRequestError
from gateway.families import Preparation
from gateway.generation import EngineFeatures, Prompt, SamplingParams
from gateway.openai.chat.answer import ChatAnswer
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.reading import ReadChoice, Style
from gateway.openai.chat.turn import ChatTurn, Expectations
from gateway.serving.model import ServedModel
from gateway.serving.prompt_source import ChatPrompt
from gateway.web.record import RequestRecord

_FIELDS = {
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
}


async def begin_answer(
    request: ChatCompletionRequest,
    source: ChatPrompt,
    turn: ChatTurn | None,
    model: ServedModel,
    record: RequestRecord,
) -> ChatAnswer:
    """Build the prompt and prepare the generations; nothing is sent yet.

    Args:
        request: as the policies of the model let it pass.
        source: of its prompt, which takes time to make where there are many messages.
        turn: what it wants beyond plain text.
        model: that is asked.
        record: of the HTTP request.

    Raises:
        EngineError: when the model is not ready, or the prompt is too long.
        BadRequestError: when calls cannot be read from this engine's answers.
        BadRequestError: when the engine cannot give what is asked.
        TemplateError: when the chat template refuses the messages.
    """
    params = request.sampling_params(model.parts.defaults)
    prepare = functools.partial(_prepare, request, turn, model, params)
    prompt, params, expectations, read = await model.build_prompt(source, prepare, request.truncation(params))
    generations = await model.generate(
        prompt, params, record.request_id, record.started, [choice.reader for choice in read]
    )
    return ChatAnswer(request, generations, read, turn is not None and turn.turn.calls, expectations)


def _prepare(
    request: ChatCompletionRequest, turn: ChatTurn | None, model: ServedModel, params: SamplingParams, prompt: Prompt
) -> tuple[Prompt, SamplingParams, Expectations, Sequence[ReadChoice]]:
    """All that takes the longer the more tools there are, where the prompt is built."""
    parts = model.parts
    expectations = Expectations()
    read: Sequence[ReadChoice] = ()
    if turn is not None:
        prepared = model.prepare(turn.turn, prompt)
        expectations = turn.expectations(prepared.preparation)
        params = prepared.apply(params, parts.tokenizer)
        if prepared.read:
            if turn.turn.calls:
                _check_readable(prepared.preparation, model, model.backend.engine.features)
            style = _style(turn, model)
            read = [ReadChoice(prepared.reader(params), style, ids=request.return_token_ids) for _ in range(params.n)]
    return prompt, params, expectations, read


def _style(turn: ChatTurn, model: ServedModel) -> Style:
    parts = model.parts
    shown = bool(turn.shown)
    return Style(
        reasoning=_FIELDS[model.settings.reasoning_output] if parts.family.reasons else (),
        old=turn.offered.old,
        named=turn.offered.named,
        short_ids=parts.template(tools=shown).abilities(tools=shown).short_ids,
    )


def _check_readable(preparation: Preparation, model: ServedModel, features: EngineFeatures) -> None:
    """Refuse calls whose marks an engine does not give: special tokens, from one that answers text only."""
    tokenizer = model.parts.tokenizer
    ids = (tokenizer.token_id(text) for text in preparation.special)
    if (
        features.token_ids
        or preparation.guided
        or not any(index is not None and tokenizer.is_special(index) for index in ids)
    ):
        return
    raise BadRequestError(
        "This model marks calls by special tokens, and its engine answers with text that lacks them; demand a call with"
        " 'tool_choice', or have the operator set path: tokens.",
        param="tools",
        code="unsupported_parameter",
    )
