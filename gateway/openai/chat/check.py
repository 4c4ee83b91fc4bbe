"""A chat request against what its model can do."""

from __future__ import annotations

from typing import Any

from gateway.bad_request import BadRequestError
from gateway.families.model_family import writes_calls
from gateway.generation import Capability
from gateway.openai.chat.plan import chat_plan
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.parameters.check import (
    NOTHING_IGNORED,
    Ignored,
    check_parameters,
    consider_form,
    consider_greedy,
    serves_all,
    without,
)
from gateway.serving.served_model import ServedModel

_BY_OWN_TEMPLATE = dict.fromkeys(("documents", "reasoning_effort"), Capability("emulated", "given to the template."))

_DEMANDED = Capability("native", "by guided decoding.")
_BY_TEMPLATE = Capability("emulated", "shown by the request's own template.")
_NO_BEAMS = Capability("impossible", "this model's engine has no input for it.")


def check_chat(request: ChatCompletionRequest, model: ServedModel) -> tuple[ChatCompletionRequest, Ignored]:
    """The request without what the policies let pass unserved, and what that is.

    Raises:
        EngineError: UNAVAILABLE while it is not known what the model can do.
        BadRequestError: for a parameter that the model cannot serve, by policy.
    """
    known = model.known_capabilities()
    if model.queues:
        request.take_turns()
    if serves_all("chat", request, known):
        return request, _with_formats(request, NOTHING_IGNORED, model)
    capabilities = dict(known)
    own_template = request.chat_template is not None and model.settings.allow_request_template
    if own_template:
        capabilities |= _BY_OWN_TEMPLATE
    if request.use_beam_search:
        # Then it is the number of beams, not of candidates.
        capabilities["best_of"] = capabilities.get("use_beam_search", _NO_BEAMS)
    consider_form(request, capabilities)
    consider_greedy(request, capabilities)
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
    request: ChatCompletionRequest, model: ServedModel, fields: dict[str, Any], capabilities: dict[str, Capability]
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


def _with_formats(request: ChatCompletionRequest, ignored: Ignored, model: ServedModel) -> Ignored:
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
    return Ignored((*ignored.named, *shown), (*ignored.counted, *shown), ignored.dropped)


def _guided(request: ChatCompletionRequest, model: ServedModel) -> bool:
    """Whether the engine is held to each call that the model may make."""
    try:
        plan = chat_plan(request, model)
    except BadRequestError:
        return False
    return plan.turn is not None and plan.turn.calls and model.parts.family.prepare(plan.turn, "").guided
