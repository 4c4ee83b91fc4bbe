"""The table of parameters: a row for each annotated field of a request, and those that are not served."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from gateway.generation.engine import Capability
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.completions.protocol import CompletionRequest
from gateway.openai.parameters.row import EndpointName, Parameter
from gateway.openai.parameters.unserved import UNSERVED

REQUESTS: Mapping[EndpointName, type[BaseModel]] = {"chat": ChatCompletionRequest, "completions": CompletionRequest}


def _served() -> Iterator[Parameter]:
    """The rows of fields: one for all endpoints of which it says the same."""
    tables = {endpoint: {row.name: row for row in _rows(model)} for endpoint, model in REQUESTS.items()}
    seen: list[Parameter] = []
    for rows in tables.values():
        for row in rows.values():
            if row not in seen:
                seen.append(row)
                alike = tuple(endpoint for endpoint, others in tables.items() if others.get(row.name) == row)
                yield replace(row, endpoints=alike)


def _rows(model: type[BaseModel], path: str = "") -> Iterator[Parameter]:
    """The rows of an object's fields, each before those of the objects in it."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        neutral = () if default is None or default is PydanticUndefined else (default,)
        for row in field.metadata:
            if isinstance(row, Parameter):
                yield replace(row, name=f"{path}{name}", neutral=neutral if row.neutral is None else row.neutral)
        for kind in get_args(field.annotation):
            if inspect.isclass(kind) and issubclass(kind, BaseModel):
                yield from _rows(kind, f"{path}{name}.")


PARAMETERS: tuple[Parameter, ...] = (*_served(), *UNSERVED)
"""Every parameter that is known, each at most once for an endpoint."""

ROWS: Mapping[EndpointName, Mapping[str, Parameter]] = {
    endpoint: {row.name: row for row in PARAMETERS if endpoint in row.endpoints} for endpoint in REQUESTS
}
"""Rows by endpoint and name."""


def find(endpoint: EndpointName, name: str) -> Parameter | None:
    """The row of a parameter; None for a name that nobody defined."""
    return ROWS[endpoint].get(name)


def served(row: Parameter, capabilities: Mapping[str, Capability]) -> Capability:
    """How a model with these capabilities serves a parameter."""
    return capabilities.get(row.name, row.how) if row.kind == "engine" else row.how
