"""``TRITON_ENGINE=llmapi``: the model ``tensorrt_llm`` served by TensorRT-LLM's LLM API (package tensorrt_llm).

Not yet run on TensorRT-LLM itself: only against a stand-in whose signatures were recorded from its sources
(tests/llmapi). Alternatives to the chosen token need ``LLM_SAMPLER_TYPE=TorchSampler`` before TensorRT-LLM 1.3; that
sampler then refuses penalties and bad words, and does not know seeds of single requests.

Environment, beside TRITON_ENGINE and MODEL_DIR: see `llmapi.options.read_options`.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from adapter import BaseAdapter
from llmapi.engine import LlmEngine
from llmapi.options import choose_sampler, llm_arguments, read_options
from reference.request import Request, Response


class Adapter(BaseAdapter):
    """Runs an `LlmEngine` for Triton."""

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        """Load the model.

        Raises:
            RuntimeError: tensorrt_llm is not importable, or a setting has no valid value.
        """
        super().__init__(args)
        options = read_options(os.environ, self._parameters, folder)
        package, llm_args, torch = (_import(name) for name in ("tensorrt_llm", "tensorrt_llm.llmapi.llm_args", "torch"))
        known = llm_args.TorchLlmArgs.model_fields
        sampler = choose_sampler(package.__version__, known, options.sampler_type)
        self._active = _Active(self._labels, options.max_batch_size)
        self._engine: LlmEngine = LlmEngine(
            package.LLM(**llm_arguments(options, folder, sampler, llm_args.KvCacheConfig)),
            package.SamplingParams,
            options,
            applies_penalties=sampler.applies_penalties,
            to_tensor=lambda array: torch.from_numpy(array.copy()),  # Triton's is read-only
            on_response=self._send,
            on_failure=self._fail,
        )

    def finalize(self) -> None:
        """Stop the engine."""
        self._engine.close()

    def _take(self, request: Any) -> None:
        super()._take(request)
        self._active.publish(self._engine.active)

    def _send(self, response: Response) -> None:
        if response.final:  # first: who sees an answer sees its slot freed
            self._active.publish(self._engine.active)
        super()._send(response)

    def _fail(self, request: Request, reason: str) -> None:
        self._active.publish(self._engine.active)
        super()._fail(request, reason)


class _Active:
    """The gauges of TensorRT-LLM (contract section 6.5) that are known here: requests in flight, and their bound."""

    def __init__(self, labels: dict[str, str], max_active: int) -> None:
        self._family = pb_utils.MetricFamily(
            name="nv_trt_llm_request_metrics",
            description="TRT LLM request metrics",
            kind=pb_utils.MetricFamily.GAUGE,
        )
        self._gauge = self._family.Metric(labels={**labels, "request_type": "active"})
        self._max = self._family.Metric(labels={**labels, "request_type": "max"})
        self._gauge.set(0)
        self._max.set(max_active)

    def publish(self, active: int) -> None:
        """Set the gauge."""
        self._gauge.set(active)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeError(
            f"TRITON_ENGINE is 'llmapi', which needs the package tensorrt_llm, and importing {name} failed ({error}); "
            "use an image that carries it (tritonserver:<version>-trtllm-python-py3), or TRITON_ENGINE=reference"
        ) from error
