"""The base of the adapters in this folder: their engine is an `LlmEngine`, and its gauges are kept up to date."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils

from engines.llmapi.llm_engine import LlmEngine
from wire.base_adapter import BaseAdapter
from wire.request import Request
from wire.response import Response


class LlmAdapter(BaseAdapter):
    """Runs an `LlmEngine`, which a subclass makes, for Triton."""

    _engine: LlmEngine

    def __init__(self, args: dict[str, str], *, max_active: int) -> None:
        """Publish the gauges.

        Args:
            args: of Triton.
            max_active: requests that may be computed together.
        """
        super().__init__(args)
        # TensorRT-LLM's gauges (wire contract 6.5) that are known here; a family must outlive its metrics.
        self._family = pb_utils.MetricFamily(
            name="nv_trt_llm_request_metrics",
            description="TRT LLM request metrics",
            kind=pb_utils.MetricFamily.GAUGE,
        )
        self._active = self._family.Metric(labels={**self._labels, "request_type": "active"})
        self._max = self._family.Metric(labels={**self._labels, "request_type": "max"})
        self._active.set(0)
        self._max.set(max_active)

    def finalize(self) -> None:
        """Stop the engine."""
        self._engine.close()

    def _take(self, request: pb_utils.InferenceRequest) -> None:
        super()._take(request)
        self._active.set(self._engine.active)

    def _send(self, response: Response) -> None:
        if response.final:  # first: a client that has its answer finds its slot free
            self._active.set(self._engine.active)
        super()._send(response)

    def _fail(self, request: Request, reason: str) -> None:
        self._active.set(self._engine.active)
        super()._fail(request, reason)
