"""The wishes of a chat request for one answer of one model: tools, their choice, a structure; in neutral terms."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from gateway.bad_request import BadRequestError
from gateway.families import Preparation, Tool, ToolPlan
from gateway.families.call_schema import are_objects
from gateway.generation import EngineFeatures
from gateway.generation.sampling_params import Guide
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.tools import FunctionDefinition, Offered, tools_for_template
from gateway.openai.errors import OpenAIError
from gateway.openai.guidance import Structure, structure
from gateway.openai.schemas import deviations, guided_schema
from gateway.openai.schemas.checked import checker
from gateway.openai.schemas.keywords import unsupported
from gateway.records import dataclass
from gateway.serving.prompt_source import ChatPrompt
from gateway.serving.served_model import ServedModel
from gateway.telemetry.request_ids import cause

_log = logging.getLogger(__name__)
_CALL_GUIDES = frozenset({"json_schema", "structural_tag"})


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """The answer that a request wants.

    Attributes:
        source: of its prompt.
        names: the request's names of parameters that errors of the engine call otherwise.
        turn: for the family; None for plain text of a model that does not reason.
        structure: of the content.
        offered: the tools and the choice among them.
        shown: definitions of tools that the template shows.
        warnings: paths at which schemas leave OpenAI's strict subset though ``strict`` was asked for.
    """

    source: ChatPrompt
    names: Mapping[str, str]
    turn: ToolPlan | None = None
    structure: Structure = field(default_factory=Structure)
    offered: Offered = field(default_factory=Offered)
    shown: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()

    def expectations(self, preparation: Preparation) -> Expectations:
        """The conditions that are left to check of a finished answer.

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
        return Expectations(self.structure, arguments, demanded)


@dataclass(frozen=True, slots=True)
class Expectations:
    """The conditions that a finished answer must fulfil, because nothing has guaranteed them.

    Attributes:
        structure: of its content.
        arguments: by the name of a tool, what its arguments must fit.
        demanded: whether there must be a call.
    """

    structure: Structure = field(default_factory=Structure)
    arguments: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    demanded: bool = False

    def __bool__(self) -> bool:
        return self.structure.fits is not None or bool(self.arguments) or self.demanded

    def failure(self, content: str, calls: Sequence[tuple[str, str]]) -> OpenAIError | None:
        """Why a whole answer that was not cut is not what was asked for; None when it is.

        Args:
            content: of the answer.
            calls: name and arguments of each call.
        """
        if self.demanded and not calls:
            return _failed("The model made no call, though one was demanded, and its engine cannot be held to it.")
        for name, arguments in calls:
            fits = self.arguments.get(name)
            if fits is not None and not fits(arguments):
                return _failed(f"The model called {name!r} with arguments that do not fit its schema.")
        fits = self.structure.fits
        if fits is not None and not calls and not fits(content):
            return _failed(f"The model's answer does not have the form that {self.structure.field!r} asks for.")
        return None


def _failed(message: str) -> OpenAIError:
    # The model's doing, so a server's error; but another try costs a whole answer: clients shall not make it unasked.
    return OpenAIError(
        500, message, type="server_error", code="invalid_model_output", headers={"x-should-retry": "false"}
    )


def chat_plan(request: ChatCompletionRequest, model: ServedModel) -> ChatPlan:
    """Decide how the answer to a request is made and checked.

    Raises:
        EngineError: UNAVAILABLE while the engine is away.
        BadRequestError: with the path of what cannot be enforced or checked.
    """
    offers, forms = request.offered, request.forms
    if not offers.functions and not forms and not model.parts.family.reasons:
        return ChatPlan(request.prompt(), request.names(None))
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
        _log.info("schemas outside of OpenAI's strict subset", extra=about)
    shown = tools_for_template(offers.functions if choice == "required" else [each for each, _ in offers.callable])
    guided_by = form.path if form.path and choice != "required" else "functions" if offers.old else "tools"
    return ChatPlan(request.prompt(shown), request.names(guided_by), turn, form, offers, shown, warnings)


def _check_required(offers: Offered, features: EngineFeatures, *, validate: bool) -> None:
    if validate or features.guide_types & _CALL_GUIDES:
        return
    raise BadRequestError(
        "A call can only be demanded of a model with guided decoding by JSON schema, which the engine of this one does"
        " not have; leave the choice to the model.",
        param=offers.choice_path.partition(".")[0],
        code="unsupported_parameter",
    )


def _check_object(guide: Guide, path: str) -> None:
    """Beside calls, which are an array, a guide can only tell an object."""
    if guide.kind == "json_schema" and not are_objects(json.loads(guide.text)):
        message = "Beside tools that may be called, the schema must be one of objects."
        raise BadRequestError(message, param=path, code="unsupported_json_schema")


def _tools(offers: Offered, features: EngineFeatures, *, structured: bool) -> tuple[Tool, ...]:
    guided = structured or (offers.choice == "required" and bool(features.guide_types))
    natively = "structural_tag" in features.guide_types
    return tuple(
        _tool(function, path, features, guided=guided or (natively and function.strict))
        for function, path in offers.callable
    )


def _tool(function: FunctionDefinition, path: str, features: EngineFeatures, *, guided: bool) -> Tool:
    """A tool for the family; its schema is the guide's where calls are guided by it."""
    parameters = function.parameters
    if guided and parameters:
        where = f"{path}.parameters"
        parameters = guided_schema(parameters, where, exact=function.strict, backend=features.guide_backend)
        if not are_objects(parameters):
            if function.strict:
                raise unsupported(where, "the arguments of a function are an object, which it leaves open")
            parameters = {"type": "object", "additionalProperties": True}
    return Tool(function.name, function.description, parameters, function.strict)
