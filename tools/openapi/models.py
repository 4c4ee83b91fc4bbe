"""Types of the responses of ``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from gateway.generation import Estimate, StreamForm
from gateway.generation.health import HealthState
from gateway.settings import EngineForm, Task


class ModelEndpoint(TypedDict):
    """One of several endpoints of a model."""

    state: HealthState
    in_flight: int


class ModelService(TypedDict):
    """The state of a served model; null for facts that are not known yet."""

    model: str
    aliases: list[str]
    ready: bool
    state: HealthState
    reason: str | None
    task: Task | None
    path: EngineForm | None
    path_reason: str | None
    triton_model: str
    max_seq_len: int | None
    token_ids: bool | None
    logprobs: bool | None
    max_top_logprobs: int | None
    guide_types: list[str] | None
    guide_backend: str | None
    family: str | None
    family_reason: str | None
    family_doubts: dict[str, str] | None
    template_renders: bool | None
    escape_special_tokens: bool
    max_stops: int
    streams: StreamForm | None
    estimates: list[Estimate] | None
    losses: list[str] | None
    cures: dict[str, str] | None
    endpoints: NotRequired[list[ModelEndpoint]]
    split: NotRequired[dict[str, float]]


class Model(TypedDict):
    """A served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["gateway"]
    max_model_len: int | None
    gateway: ModelService


class ModelList(TypedDict):
    """All served models by all their names."""

    object: Literal["list"]
    data: list[Model]


ParameterCapability = TypedDict(
    "ParameterCapability",
    {
        "class": Literal["annotation", "impossible", "engine", "output"],
        "how": str,
        "note": str,
        "limit": NotRequired[int],
        "default": NotRequired[Any],
    },
)
ParameterCapability.__doc__ = "The meaning of a parameter, how it is served, why, the largest value and the default."


class ModelDescription(Model):
    """A served model with what it can do, by parameter; null before its engine was found."""

    capabilities: dict[str, ParameterCapability] | None
