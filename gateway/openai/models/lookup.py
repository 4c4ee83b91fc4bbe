"""From a model's id to the served model."""

from __future__ import annotations

from gateway.access.caller import caller
from gateway.openai.errors import OpenAIError
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel


def find_model(registry: Registry, name: str, conversation: str | None = None) -> ServedModel:
    """The served model with this id, where the caller may use it; ``conversation`` as of ``Registry.get``.

    Raises:
        OpenAIError: 404 ``model_not_found``.
    """
    model = registry.get(name, conversation)
    if model is None or not _may_use(registry, name, model):
        raise OpenAIError(404, f"The model {name[:256]!r} does not exist.", param="model", code="model_not_found")
    return model


def models_of_caller(registry: Registry) -> list[tuple[str, ServedModel]]:
    """Every id under which the caller reaches a model, with the model."""
    return [(name, model) for name, model in registry.names() if _may_use(registry, name, model)]


def _may_use(registry: Registry, name: str, model: ServedModel) -> bool:
    """Whether the caller may use a model under a name; a split by its own name only."""
    return caller().may_use((name,) if registry.split(name) else (model.name, name))
