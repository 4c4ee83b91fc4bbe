"""Checks a request's fields against the table: each is served, ignored by policy, or rejected by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from gateway.api.openai.formats import capability_of
from gateway.api.openai.generation_fields import GREEDY_BELOW, GenerationFields, plain
from gateway.api.openai.parameters.row import BY_GATEWAY, NO_INPUT, EndpointName
from gateway.api.openai.parameters.table import find, served
from gateway.generation.engine import Capability
from gateway.settings.model_settings import SamplingDefaults
from gateway.text.bad_request import BadRequestError, printable

Policy = Literal["strict", "warn", "ignore"]

Request = TypeVar("Request", bound=GenerationFields)

_LOOKED_INTO = frozenset({"stream_options", "nvext"})
# Rejected under every policy: a client that waits for events cannot read a whole answer.
_NEVER_DROPPED = frozenset({"stream"})


class ParameterPolicies(Protocol):
    """The operator's policies for parameters that are not served."""

    @property
    def impossible(self) -> Policy:
        """The policy for known parameters that the model cannot serve."""
        ...

    @property
    def hints(self) -> Policy:
        """The policy for parameters that the model cannot serve and an answer does not need."""
        ...

    @property
    def unknown(self) -> Policy:
        """The policy for unknown fields."""
        ...


@dataclass(frozen=True, slots=True)
class IgnoredParameters:
    """The parameters that a request is served without.

    Attributes:
        named: names for the header ``x-ignored-parameters``, by policy ``warn``.
        counted: names for the metric, by policies ``warn`` and ``ignore``.
        dropped: names of known parameters that must be removed from the request.
    """

    named: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()


def check_parameters(
    endpoint: EndpointName,
    fields: Mapping[str, Any],
    capabilities: Mapping[str, Capability],
    policies: ParameterPolicies,
) -> IgnoredParameters:
    """Decide for each field of a request whether it is served.

    Args:
        endpoint: where the request came in.
        fields: the fields as given; ``stream_options`` and ``nvext`` are looked into.
        capabilities: how the model serves each parameter, as of ``GeneratorModel.capabilities``; what it does not name
            is served as the table says.
        policies: of the model.

    Raises:
        BadRequestError: that names the parameter, where a policy is ``strict``.
    """
    found: list[tuple[str, Policy]] = []
    dropped: set[str] = set()
    for name, value in _flat(fields):
        row = find(endpoint, name)
        if row is None:
            message = f"Unrecognized request argument supplied: {printable(name, 256)}."
            found.append((name, _apply(policies.unknown, message, name)))
            continue
        how = served(row, capabilities)
        if how.limit is not None:
            _check_limit(name, value, how.limit, how.note)
        elif how.how == "impossible" and not row.is_neutral(plain(value)):
            message = f"The parameter {name!r} is not supported with this value: {how.note}"
            policy = policies.hints if row.hint else policies.impossible
            policy = "strict" if name in _NEVER_DROPPED else policy
            found.append((name, _apply(policy, message, name)))
            dropped.add(name)
    named = tuple(name for name, policy in found if policy == "warn")
    return IgnoredParameters(named, tuple(name for name, _ in found), frozenset(dropped))


def _flat(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        yield name, value
        if name in _LOOKED_INTO and isinstance(value := plain(value), Mapping):
            for key, item in value.items():
                yield f"{name}.{key}", item


def _apply(policy: Policy, message: str, name: str) -> Policy:
    if policy == "strict":
        raise BadRequestError(message, param=printable(name, 256), code="unsupported_parameter")
    return policy


def _check_limit(name: str, value: Any, limit: float, note: str) -> None:
    if isinstance(value, (int, float)) and value > limit:
        message = f"'{name}' must be at most {limit} for this model: {note}"
        raise BadRequestError(message, param=name, code="integer_above_max_value")


def without(request: Request, names: Collection[str]) -> Request:
    """Copy the request without some fields."""
    if not names:
        return request
    known = type(request).model_fields
    defaults = {name: known[name].get_default(call_default_factory=True) for name in names if name in known}
    copy = request.model_copy(update=defaults)
    copy.model_fields_set.difference_update(names)
    for name in vars(copy).keys() - known.keys():  # cached properties, which were derived from the whole request
        del vars(copy)[name]
    return copy


def considered(
    request: GenerationFields, known: Mapping[str, Capability], defaults: SamplingDefaults
) -> dict[str, Capability]:
    """Return the capabilities for a request, of which other fields change some.

    Args:
        request: the request.
        known: the model's capabilities.
        defaults: the model's defaults, for fields that the request leaves out.
    """
    found = dict(known)
    if request.use_beam_search:  # then it is the number of beams, not of candidates
        found["best_of"] = known.get("use_beam_search", NO_INPUT)
    form = known.get(capability_of(request.response_format))
    if form is not None:
        found["response_format"] = form
    how = known.get("temperature")
    if how is not None and how.how == "impossible" and request.temperature < GREEDY_BELOW:
        found["temperature"] = known.get("top_k", BY_GATEWAY)  # greedy takes no temperature, but the best token
    whole = [name for name in request.model_fields_set if name in found and found[name].truncated]
    if whole and request.sampling_params(defaults).truncates:
        found |= {name: Capability("impossible", found[name].truncated) for name in whole}
    return found
