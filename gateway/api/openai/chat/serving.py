"""The steps of a chat request from its parsed body to its prepared answer: check, plan, prepare."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.api.openai.chat.answer import AnswerExpectations, ChatAnswer, PreparedChat
from gateway.api.openai.chat.choice import AnswerStyle, ParsedChoice
from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.chat.tools import NO_TOOLS, FunctionDefinition, OfferedTools, tools_for_template
from gateway.api.openai.errors import Names
from gateway.api.openai.guidance import ANY_TEXT, Structure, structure
from gateway.api.openai.parameters.check import IgnoredParameters, check_parameters, considered, without
from gateway.generation import Capability, EngineFeatures, SamplingParams
from gateway.http.access_log import RequestRecord
from gateway.serving.budgeted_engine import ReasoningBudget
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.prompts import ChatPrompt
from gateway.telemetry.logs import cause
from gateway.text.bad_request import BadRequestError
from gateway.text.families import Preparation, Tool, ToolPlan
from gateway.text.families.call_schema import are_objects
from gateway.text.families.model_family import writes_calls
from gateway.text.guides import deviations, guided_schema
from gateway.text.guides.checked import checker
from gateway.text.guides.guide import Guide
from gateway.text.guides.keywords import unsupported
from gateway.text.prompt.prompt import Prompt

_log = logging.getLogger(__name__)
_CALL_GUIDES = frozenset({"json_schema", "structural_tag"})


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """A plan to make and check the answer to a chat request.

    Attributes:
        source: the source of the prompt.
        names: makes the map from the engine's names of parameters in errors to the request's names.
        turn: what the family's parser reads; None for plain text of a model that does not reason.
        structure: the structure of the content.
        offered: the tools and the choice among them.
        shown: definitions of tools that the template shows.
        warnings: paths at which schemas leave OpenAI's strict subset though ``strict`` was asked for.
        path: maps a path of the chat request to the client's path.
    """

    source: ChatPrompt
    names: Names
    turn: ToolPlan | None = None
    structure: Structure = ANY_TEXT
    offered: OfferedTools = NO_TOOLS
    shown: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    path: Callable[[str], str] = str

    def expectations(self, preparation: Preparation) -> AnswerExpectations:
        """Make the conditions that a finished answer must be checked for.

        Args:
            preparation: of the family, which may guarantee the calls.

        Raises:
            BadRequestError: with the path of what cannot be checked.
        """
        arguments: dict[str, Callable[[str], bool]] = {}
        if not preparation.guided:
            for function, path in self.offered.callable:
                if function.strict:
                    arguments[function.name] = checker(
                        {"maxProperties": 0} if function.parameters is None else function.parameters,
                        f"{path}.parameters",
                    )
        demanded = self.turn is not None and self.turn.choice == "required" and not preparation.guided
        return AnswerExpectations(self.structure, arguments, demanded)


def chat_plan(request: ChatCompletionRequest, model: GeneratorModel) -> ChatPlan:
    """Decide how the answer to a request is made and checked.

    Raises:
        EngineError: UNAVAILABLE while the engine is unreachable.
        BadRequestError: with the path of what cannot be enforced or checked.
    """
    forms = request.forms
    if not (request.tools or request.functions or forms or model.reasons):
        return ChatPlan(request.prompt(), functools.partial(request.names, None))
    offers = request.offered
    features = model.backend.features
    wanted = forms[0] if forms else None
    validate = model.settings.structured_output_without_guidance == "validate"
    form = structure(wanted, features, validate=validate)
    choice = offers.choice if offers.callable else "none"
    if choice == "required":
        _check_required(offers, features, validate=validate)
    turn = ToolPlan(
        tools=_tools(offers, features, structured=form.guide is not None),
        choice=choice,
        parallel=request.parallel_tool_calls and not (offers.old or offers.named),
        single=offers.named,
        response=form.guide,
        guide_types=features.guide_types,
    )
    if turn.calls and form.guide is not None:
        _check_object(form.guide, wanted.path if wanted else "")
    warnings = [] if wanted is None else wanted.deviations()
    for function, path in zip(offers.functions, offers.paths, strict=True):
        if function.strict and function.parameters:
            warnings += deviations(function.parameters, f"{path}.parameters")
    if warnings:
        about = {"event": "schemas_not_strict", **cause(), "paths": warnings[:32]}
        _log.info("schemas outside OpenAI's strict subset", extra=about)
    shown = tools_for_template(offers.functions if choice == "required" else [each for each, _ in offers.callable])
    guided_by = form.path if form.path and choice != "required" else "functions" if offers.old else "tools"
    names = functools.partial(request.names, guided_by)
    return ChatPlan(request.prompt(shown), names, turn, form, offers, shown, warnings)


def _check_required(offers: OfferedTools, features: EngineFeatures, *, validate: bool) -> None:
    if validate or features.guide_types & _CALL_GUIDES:
        return
    raise BadRequestError(
        "The engine of this model has no guided decoding by JSON schema, which required tool calls need; set "
        "'tool_choice' to 'auto'.",
        param=offers.choice_path.partition(".")[0],
        code="unsupported_parameter",
    )


def _check_object(guide: Guide, path: str) -> None:
    """Beside calls, which are an array, a guide can only tell an object."""
    if guide.kind == "json_schema" and not are_objects(json.loads(guide.text)):
        message = "The type of the schema must be 'object' when tools may be called."
        raise BadRequestError(message, param=path, code="unsupported_json_schema")


def _tools(offers: OfferedTools, features: EngineFeatures, *, structured: bool) -> tuple[Tool, ...]:
    guided = structured or (offers.choice == "required" and bool(features.guide_types))
    natively = "structural_tag" in features.guide_types
    return tuple(
        _tool(function, path, features, guided=guided or (natively and function.strict))
        for function, path in offers.callable
    )


def _tool(function: FunctionDefinition, path: str, features: EngineFeatures, *, guided: bool) -> Tool:
    """A tool for the family; its schema is the guide's where calls are guided by it."""
    parameters = function.readable
    if guided and parameters:
        where = f"{path}.parameters"
        parameters = guided_schema(parameters, where, exact=function.strict, backend=features.guide_backend)
        if not are_objects(parameters):
            if function.strict:
                raise unsupported(where, "it does not say which properties the arguments of the function have")
            parameters = {"type": "object", "additionalProperties": True}
    return Tool(function.name, function.description, parameters, function.strict)


_BY_OWN_TEMPLATE = dict.fromkeys(("documents", "reasoning_effort"), Capability("emulated", "given to the template."))

_DEMANDED = Capability("native", "by guided decoding.")
_BY_TEMPLATE = Capability("emulated", "shown by the request's own template.")


def check_chat(
    request: ChatCompletionRequest, model: GeneratorModel
) -> tuple[ChatCompletionRequest, IgnoredParameters]:
    """Check a request against its model; returns it without ignored parameters, and their names.

    Raises:
        EngineError: UNAVAILABLE while it is not known what the model can do.
        BadRequestError: for a parameter that the model cannot serve, by policy.
    """
    capabilities = considered(request, model.known_capabilities(), model.defaults)
    if model.queues:
        request.take_turns()
    own_template = request.chat_template is not None and model.settings.allow_request_template
    if own_template:
        capabilities |= _BY_OWN_TEMPLATE
    fields = request.given() | request.unknown_parts()
    _consider_tools(request, model, fields, capabilities)
    if not own_template:
        read = model.parts.prompts.template
        unread = request.chat_template_kwargs.keys() - read.variables - read.reserved
        fields |= {f"chat_template_kwargs.{name}": True for name in sorted(unread)}
    ignored = check_parameters("chat", fields, capabilities, model.settings.policies)
    request = without(request, ignored.dropped)
    return request, _with_formats(request, ignored, model)


def _consider_tools(
    request: ChatCompletionRequest, model: GeneratorModel, fields: dict[str, Any], capabilities: dict[str, Capability]
) -> None:
    """Let the choice among the tools decide: to demand a call takes guidance, to leave it open takes a template."""
    offers = request.offered
    if not offers.functions:
        return
    if offers.choice != "required":
        fields.pop("tool_choice", None)
        fields.pop("function_call", None)
    if offers.choice == "required" or not offers.callable:
        capabilities |= dict.fromkeys(("tools", "functions"), _DEMANDED)
    elif request.chat_template is not None and writes_calls(model.parts.family):
        capabilities |= dict.fromkeys(("tools", "functions"), _BY_TEMPLATE)


def _with_formats(
    request: ChatCompletionRequest, ignored: IgnoredParameters, model: GeneratorModel
) -> IgnoredParameters:
    """Hold custom tools to their regular expressions where the engine can; name the formats that are only shown."""
    offers = request.offered
    if not offers.custom:
        return ignored
    shown = list(offers.shown)
    functions = [offers.functions[place] for place in offers.patterns]
    for function in functions:
        function.strict = True
    if functions and not _guided(request, model):
        for function in functions:
            function.strict = False
        shown += offers.patterns.values()
    return IgnoredParameters((*ignored.named, *shown), (*ignored.counted, *shown), ignored.dropped)


def _guided(request: ChatCompletionRequest, model: GeneratorModel) -> bool:
    """Whether the engine is held to each call that the model may make."""
    try:
        plan = chat_plan(request, model)
    except BadRequestError:
        return False
    return plan.turn is not None and plan.turn.calls and model.parts.family.prepare(plan.turn, "").guided


_FIELDS = {
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
}


async def prepare(
    request: ChatCompletionRequest, plan: ChatPlan, model: GeneratorModel, record: RequestRecord
) -> ChatAnswer:
    """Prepare the answer to a chat request; see ``prepare_generations``."""
    return ChatAnswer(request, await prepare_generations(request, plan, model, record), plan.names)


async def prepare_generations(
    request: ChatCompletionRequest,
    plan: ChatPlan,
    model: GeneratorModel,
    record: RequestRecord,
    *,
    clamp: bool = False,
    max_tokens: int | None = None,
) -> PreparedChat:
    """Build the prompt and prepare the generations, without sending anything yet.

    Args:
        request: as the policies of the model let it pass.
        plan: of its answer.
        model: that is asked.
        record: of the HTTP request.
        clamp: whether a limit of tokens beyond the context is clamped, whatever the operator's policy.
        max_tokens: tokens to generate in place of the request's limits, which still cut the prompt; None keeps them.

    Raises:
        BadRequestError: when the engine does not support what is requested, or calls cannot be read from its answers.
        EngineError: when the model is not ready, or the prompt is too long.
        TemplateError: when the chat template rejects the messages.
    """
    params = request.sampling_params(model.defaults)
    if clamp:
        params = dataclasses.replace(params, clamp_max_tokens=True)
    then = functools.partial(_prepare, request, plan, model, params)
    prompt, params, expectations, parsed, budget = await model.build_prompt(
        plan.source,
        then,
        None if request.truncate_prompt_tokens is None else request.truncation(params),
        params.cache_salt,
    )
    if max_tokens is not None:
        params = dataclasses.replace(params, max_tokens=max_tokens, min_tokens=0)
    readers = [choice.reader for choice in parsed] if parsed else ()
    affinity = model.affinity(plan.source, request.prompt_cache_key or record.session)
    generations = await model.generate(
        prompt, params, record.request_id, record.started, readers, budget, affinity=affinity
    )
    calls = plan.turn is not None and plan.turn.calls
    return PreparedChat(generations, parsed, calls, expectations, [plan.path(path) for path in prompt.changed])


def _prepare(
    request: ChatCompletionRequest, plan: ChatPlan, model: GeneratorModel, params: SamplingParams, prompt: Prompt
) -> tuple[Prompt, SamplingParams, AnswerExpectations | None, Sequence[ParsedChoice], ReasoningBudget | None]:
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


def _style(plan: ChatPlan, model: GeneratorModel) -> AnswerStyle:
    parts = model.parts
    shown = bool(plan.shown)
    return AnswerStyle(
        reasoning=_FIELDS[model.settings.reasoning_output] if parts.family.reasons else (),
        old=plan.offered.old,
        named=plan.offered.named,
        custom=plan.offered.custom,
        short_ids=parts.template(tools=shown).abilities(tools=shown, variables=plan.source.variables).short_ids,
    )


def _check_readable(preparation: Preparation, model: GeneratorModel, features: EngineFeatures) -> None:
    """Reject calls that the model marks by special tokens, where the engine returns text only."""
    tokenizer = model.parts.tokenizer
    ids = (tokenizer.token_id(text) for text in preparation.special)
    if (
        features.token_ids
        or preparation.guided
        or not any(index is not None and tokenizer.is_special(index) for index in ids)
    ):
        return
    raise BadRequestError(
        "This model marks tool calls with special tokens, which its engine leaves out of the text. Set 'tool_choice' "
        "to 'required', or ask the operator to set path: tokens.",
        param="tools",
        code="unsupported_parameter",
    )
