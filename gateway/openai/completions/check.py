"""A completion request against what its model can do."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.bad_request import BadRequestError
from gateway.generation import Capability
from gateway.openai.completions.protocol import CompletionRequest
from gateway.openai.parameters.check import (
    NOTHING_IGNORED,
    Ignored,
    check_parameters,
    consider_form,
    consider_greedy,
    serves_all,
    without,
)
from gateway.openai.parameters.table import find, served
from gateway.serving.served_model import ServedModel


def check_completion(request: CompletionRequest, model: ServedModel) -> tuple[CompletionRequest, Ignored]:
    """The request without what the policies let pass unserved, and what that is.

    Raises:
        EngineError: UNAVAILABLE while it is not known what the model can do.
        BadRequestError: for a parameter that the model cannot serve, by policy.
    """
    known = model.known_capabilities()
    ignored = NOTHING_IGNORED
    if not serves_all("completions", request, known):
        capabilities = dict(known)
        if request.use_beam_search:
            capabilities["best_of"] = _capability("use_beam_search", known)
        consider_form(request, capabilities)
        consider_greedy(request, capabilities)
        fields = request.given() | request.unknown_parts()
        ignored = check_parameters("completions", fields, capabilities, model.settings.policies)
        request = without(request, ignored.dropped)
    _check_echo(request, _capability("prompt_logprobs", known))
    return request, ignored


def _capability(name: str, capabilities: Mapping[str, Capability]) -> Capability:
    row = find("completions", name)
    assert row is not None, name  # noqa: S101 - the table names what this module asks for
    return served(row, capabilities)


def _check_echo(request: CompletionRequest, how: Capability) -> None:
    """Whatever the policy: log-prob lists without the prompt's would be taken for lists with them."""
    if not request.echo or request.logprobs is None:
        return
    if how.how == "impossible":
        message = f"'echo' with 'logprobs' needs the log-probs of the prompt: {how.note} Leave out one of the two."
        raise BadRequestError(message, param="echo", code="unsupported_parameter")
    if how.limit is not None and request.logprobs > how.limit:
        message = f"With 'echo', 'logprobs' may be at most {how.limit} with this model: {how.note}"
        raise BadRequestError(message, param="logprobs", code="integer_above_max_value")
