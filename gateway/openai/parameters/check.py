"""A request's fields against the table: served, ignored by policy, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gateway.bad_request import BadRequestError
from gateway.generation.engine import Capability
from gateway.openai.parameters.row import Endpoint
from gateway.openai.parameters.table import find, served

Policy = Literal["strict", "warn", "ignore"]

_LOOKED_INTO = frozenset({"stream_options", "nvext"})


class Policies(Protocol):
    """What to do with parameters that cannot be served."""

    @property
    def impossible(self) -> Policy:
        """For parameters that are known and that this model cannot serve."""
        ...

    @property
    def hints(self) -> Policy:
        """For those of them that an answer is as good without."""
        ...

    @property
    def unknown(self) -> Policy:
        """For fields that nobody defined as far as this gateway knows."""
        ...


@dataclass(frozen=True, slots=True)
class Ignored:
    """What a request is served without.

    Attributes:
        named: names for the header ``x-ignored-parameters``: what policy ``warn`` let pass.
        counted: names for the metric: those, and what policy ``ignore`` let pass.
        dropped: names of known parameters that must be left out when the request is carried out.
    """

    named: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()


def check_parameters(
    endpoint: Endpoint,
    fields: Mapping[str, Any],
    capabilities: Mapping[str, Capability],
    policies: Policies,
) -> Ignored:
    """Decide for each field of a request whether it is served.

    Args:
        endpoint: where the request came in.
        fields: the fields as given; ``stream_options`` and ``nvext`` are looked into.
        capabilities: how the model serves each parameter, as of ``ServedModel.capabilities``; what it does not name
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
            message = f"Unrecognized request argument supplied: {_shown(name)}."
            found.append((name, _apply(policies.unknown, message, name)))
        elif row.kind != "annotation" and not row.is_neutral(value):
            how = served(row, capabilities)
            if how.how == "impossible":
                message = f"The parameter {name!r} is not supported with this value: {how.note}"
                policy = policies.hints if row.hint else policies.impossible
                found.append((name, _apply(policy, message, name)))
                dropped.add(name)
            else:
                _check_limit(name, value, how)
    named = tuple(name for name, policy in found if policy == "warn")
    return Ignored(named, tuple(name for name, _ in found), frozenset(dropped))


def _flat(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        yield name, value
        if name in _LOOKED_INTO and isinstance(value, Mapping):
            for key, item in value.items():
                yield f"{name}.{key}", item


def _apply(policy: Policy, message: str, name: str) -> Policy:
    if policy == "strict":
        raise BadRequestError(message, param=_shown(name), code="unsupported_parameter")
    return policy


def _check_limit(name: str, value: Any, how: Capability) -> None:
    if how.limit is not None and isinstance(value, (int, float)) and value > how.limit:
        message = f"'{name}' may be at most {how.limit} with this model: {how.note}"
        raise BadRequestError(message, param=name, code="integer_above_max_value")


def _shown(name: str) -> str:
    """A name that a client chose, as one that is safe to show."""
    return name[:256].encode("ascii", "backslashreplace").decode()
