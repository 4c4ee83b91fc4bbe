"""From a model's id to the served model."""

from __future__ import annotations

from gateway.openai.errors import OpenAIError
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel


def find_model(registry: Registry, name: str) -> ServedModel:
    """The served model with this id.

    Raises:
        OpenAIError: 404 ``model_not_found``.
    """
    model = registry.get(name)
    if model is None:
        raise OpenAIError(404, f"The model {name[:256]!r} does not exist.", param="model", code="model_not_found")
    return model
