"""The steps of a completion request from its parsed body to its prepared answer: check, plan, prepare."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.api.openai.completions.answer import CompletionAnswer
from gateway.api.openai.completions.choice import ChoiceReader, PreparedPrompt, VisibleParts
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.errors import Names
from gateway.api.openai.guidance import Structure, structure
from gateway.api.openai.parameters.check import IgnoredParameters, check_parameters, considered, without
from gateway.api.openai.parameters.row import NO_INPUT
from gateway.generation import Capability
from gateway.http.access_log import RequestRecord
from gateway.serving.generator_model import GeneratorModel
from gateway.text.bad_request import BadRequestError


@dataclass(frozen=True, slots=True)
class CompletionPlan:
    """A plan to make and check the answer to a completion request.

    Attributes:
        names: makes the map from the engine's names of parameters in errors to the request's names.
        structure: the structure of the text.
        warnings: paths at which schemas leave OpenAI's strict subset though ``strict`` was asked for.
    """

    names: Names
    structure: Structure
    warnings: Sequence[str] = ()


def completion_plan(request: CompletionRequest, model: GeneratorModel) -> CompletionPlan:
    """Decide how the answer to a request is made.

    Raises:
        BadRequestError: with the path of what cannot be enforced.
        EngineError: UNAVAILABLE while the engine is unreachable.
    """
    wanted = request.forms[0] if request.forms else None
    form = structure(wanted, model.backend.features, validate=False)
    names = functools.partial(request.names, wanted.path if wanted else None)
    return CompletionPlan(names, form, wanted.deviations() if wanted else ())


def check_completion(request: CompletionRequest, model: GeneratorModel) -> tuple[CompletionRequest, IgnoredParameters]:
    """Check a request against its model; returns it without ignored parameters, and their names.

    Raises:
        EngineError: UNAVAILABLE while it is not known what the model can do.
        BadRequestError: for a parameter that the model cannot serve, by policy.
    """
    known = model.known_capabilities()
    capabilities = considered(request, known, model.defaults)
    fields = request.given() | request.unknown_parts()
    ignored = check_parameters("completions", fields, capabilities, model.settings.policies)
    request = without(request, ignored.dropped)
    _check_echo(request, known.get("prompt_logprobs", NO_INPUT))
    return request, ignored


def _check_echo(request: CompletionRequest, how: Capability) -> None:
    """Check that the engine has the prompt's log-probs; they are required under each policy for unsupported parameters.

    Raises:
        BadRequestError: the engine has no log-probs of the prompt, or fewer alternatives than requested.
    """
    if not request.echo or request.logprobs is None:
        return
    if how.how == "impossible":
        message = f"'echo' with 'logprobs' requires the log-probs of the prompt: {how.note} Send only one of the two."
        raise BadRequestError(message, param="echo", code="unsupported_parameter")
    if how.limit is not None and request.logprobs > how.limit:
        message = f"'logprobs' with 'echo' must be at most {how.limit} for this model: {how.note}"
        raise BadRequestError(message, param="logprobs", code="integer_above_max_value")


_MOST_TOKENS = 2**20  # of all prompts of a request; each takes some tens of bytes until the last answer ends


async def prepare(
    request: CompletionRequest, plan: CompletionPlan, model: GeneratorModel, record: RequestRecord
) -> CompletionAnswer:
    """Build every prompt and prepare its generations; nothing is sent yet.

    Args:
        request: as the policies of the model let it pass.
        plan: of its answer.
        model: that is asked.
        record: of the HTTP request.

    Raises:
        BadRequestError: when the engine does not support what is requested.
        EngineError: when the model is not ready, or a prompt is too long.
    """
    return CompletionAnswer(request, await _choices(request, plan, model, record), plan.names)


async def _choices(
    request: CompletionRequest, plan: CompletionPlan, model: GeneratorModel, record: RequestRecord
) -> list[ChoiceReader]:
    parts = model.parts
    params = request.sampling_params(model.defaults)
    params = dataclasses.replace(params, guide=plan.structure.guide)
    truncation = request.truncation(params)
    shown = VisibleParts.of(request, parts.end_ids)
    choices: list[ChoiceReader] = []
    tokens, most = 0, max(_MOST_TOKENS, parts.max_seq_len)
    for index, source in enumerate(request.sources):
        try:
            then = functools.partial(PreparedPrompt, source)
            prepared = await model.build_prompt(source, then, truncation, params.cache_salt)
        except BadRequestError as error:
            raise _of_element(error, request, index) from None
        tokens += len(prepared.prompt.ids)
        if tokens > most:
            message = f"The prompts of a request may have at most {most} tokens in total; send fewer prompts."
            raise BadRequestError(message, "prompt", "array_above_max_length")
        generations = await model.generate(
            prepared.prompt, params, record.request_id, record.started,
            affinity=model.affinity(source, record.session),
        )  # fmt: skip
        choices += [ChoiceReader(running, prepared, shown, parts.tokenizer) for running in generations]
        await asyncio.sleep(0)  # tokenizing many prompts would hold up other requests' tokens
    return choices


def _of_element(error: BadRequestError, request: CompletionRequest, index: int) -> BadRequestError:
    """Add a prompt's index to its error, where the request has several prompts."""
    param = error.param or ""
    if len(request.sources) == 1 or not param.startswith("prompt"):
        return error
    return BadRequestError(error.message, f"prompt[{index}]" + param.removeprefix("prompt"), error.code)
