"""A checked request to an answer that is ready to run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from gateway.bad_request import BadRequestError
from gateway.families import Preparation
from gateway.generation import EngineFeatures, Prompt, SamplingParams
from gateway.openai.chat.answer import ChatAnswer
from gateway.openai.chat.choice import ParsedChoice, Style
from gateway.openai.chat.plan import ChatPlan, Expectations
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.records import dataclass
from gateway.serving.budgeted_engine import ThoughtBudget
from gateway.serving.generation import Generation
from gateway.serving.served_model import ServedModel
from gateway.web.access_log import RequestRecord

_FIELDS = {
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A conversation that is ready to be continued.

    Attributes:
        generations: one for each candidate; nothing was sent yet.
        parsed: one for each generation where calls or reasoning may be in it, else none.
        expectations: conditions that are checked at the end.
    """

    generations: Sequence[Generation]
    parsed: Sequence[ParsedChoice]
    expectations: Expectations | None


async def prepare(
    request: ChatCompletionRequest, plan: ChatPlan, model: ServedModel, record: RequestRecord
) -> ChatAnswer:
    """Prepare the answer to a chat request; see ``prepare_generations``."""
    prepared = await prepare_generations(request, plan, model, record)
    return ChatAnswer(
        request,
        prepared.generations,
        plan.names,
        parsed=prepared.parsed,
        calls=plan.turn is not None and plan.turn.calls,
        expectations=prepared.expectations,
    )


async def prepare_generations(
    request: ChatCompletionRequest, plan: ChatPlan, model: ServedModel, record: RequestRecord, *, clamp: bool = False
) -> Prepared:
    """Build the prompt and prepare the generations; nothing is sent yet.

    Args:
        request: as the policies of the model let it pass.
        plan: of its answer.
        model: that is asked.
        record: of the HTTP request.
        clamp: whether a limit of tokens beyond the context is clamped, whatever the operator's policy.

    Raises:
        BadRequestError: when the engine cannot give what is asked, or calls cannot be read from its answers.
        EngineError: when the model is not ready, or the prompt is too long.
        TemplateError: when the chat template refuses the messages.
    """
    params = request.sampling_params(model.defaults)
    if clamp:
        params = dataclasses.replace(params, clamp_max_tokens=True)
    then = functools.partial(_prepare, request, plan, model, params)
    prompt, params, expectations, parsed, budget = await model.build_prompt(
        plan.source, then, request.truncation(params), params.cache_salt
    )
    readers = [choice.reader for choice in parsed]
    affinity = model.affinity(plan.source, request.prompt_cache_key or record.session)
    generations = await model.generate(
        prompt, params, record.request_id, record.started, readers, budget, affinity=affinity
    )
    return Prepared(generations, parsed, expectations)


def _prepare(
    request: ChatCompletionRequest, plan: ChatPlan, model: ServedModel, params: SamplingParams, prompt: Prompt
) -> tuple[Prompt, SamplingParams, Expectations | None, Sequence[ParsedChoice], ThoughtBudget | None]:
    """All that takes the longer the more tools there are, where the prompt is built."""
    if plan.turn is None:
        return prompt, params, None, (), None
    prepared = model.prepare(plan.turn, prompt)
    expectations = plan.expectations(prepared.preparation)
    params = prepared.apply(params, model.parts.tokenizer)
    parsed: Sequence[ParsedChoice] = ()
    if prepared.read:
        if plan.turn.calls:
            _check_readable(prepared.preparation, model, model.backend.features)
        style = _style(plan, model)
        parsed = [ParsedChoice(prepared.reader(params), style, ids=request.return_token_ids) for _ in range(params.n)]
    return prompt, params, expectations, parsed, prepared.thought_budget(params, model.parts.tokenizer)


def _style(plan: ChatPlan, model: ServedModel) -> Style:
    parts = model.parts
    shown = bool(plan.shown)
    return Style(
        reasoning=_FIELDS[model.settings.reasoning_output] if parts.family.reasons else (),
        old=plan.offered.old,
        named=plan.offered.named,
        custom=plan.offered.custom,
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
