"""Types of the responses for operators."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from gateway.generation.health import HealthState


class Liveness(TypedDict):
    """Whether the process serves, and whether the engine beside it gives tokens."""

    status: Literal["ok", "engine dead"]


class EndpointReadiness(TypedDict):
    """One of several endpoints of a model."""

    state: HealthState
    reason: NotRequired[str]


class ModelReadiness(TypedDict):
    """Whether a model can be served and its state; reasons and endpoints unless the API asks for keys.

    Where only a part of the worker processes serves it, ``degraded`` tells of the others.
    """

    ready: bool
    state: HealthState
    reason: NotRequired[str]
    degraded: NotRequired[str]
    endpoints: NotRequired[dict[str, EndpointReadiness]]


class Readiness(TypedDict):
    """Whether all models can be served, by their names."""

    status: Literal["ready", "not ready"]
    models: dict[str, ModelReadiness]


class Version(TypedDict):
    """The version of the gateway."""

    version: str
