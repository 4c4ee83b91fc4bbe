"""All served models, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from gateway.config import Settings
from gateway.serving.backend import BackendFactory
from gateway.serving.model import ServedModel
from gateway.telemetry.metrics import Metrics


class Registry:
    """The served models in the order of the settings."""

    def __init__(self, settings: Settings, backend_factory: BackendFactory, metrics: Metrics) -> None:
        """Make all models; ``start`` loads them.

        Args:
            settings: of the gateway.
            backend_factory: makes the supervised engine of one model.
            metrics: the application's metrics.
        """
        self._models = {
            model.name: ServedModel(
                model, backend_factory(model), key=f"models[{index}]", timeouts=settings.timeouts, metrics=metrics
            )
            for index, model in enumerate(settings.models)
        }

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def get(self, name: str) -> ServedModel | None:
        """The model with this id, None when there is none."""
        return self._models.get(name)

    def readiness(self) -> dict[str, str | None]:
        """For each model why it is not ready, None when it is."""
        return {model.name: model.unready() for model in self}

    async def start(self) -> None:
        """Start all models side by side.

        Raises:
            ConfigError: when one cannot be served as configured.
        """
        await asyncio.gather(*(model.start() for model in self))

    async def close(self) -> None:
        """Close all models."""
        await asyncio.gather(*(model.close() for model in self))
