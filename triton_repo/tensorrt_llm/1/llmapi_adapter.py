"""``TRITON_ENGINE=llmapi``: the model ``tensorrt_llm`` served by TensorRT-LLM's LLM API (package tensorrt_llm).

Not yet run on TensorRT-LLM itself: only against a stand-in whose signatures were recorded from its sources
(tests/llmapi). Alternatives to the chosen token need ``LLM_SAMPLER_TYPE=TorchSampler`` before TensorRT-LLM 1.3; that
sampler then refuses penalties and bad words, and does not know seeds of single requests.

Environment, beside TRITON_ENGINE and MODEL_DIR: see `llmapi.options.read_options`.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils
import wire
from llmapi.engine import LlmEngine
from llmapi.options import choose_sampler, llm_arguments, read_options
from reference.request import RefusedError, Request, Response

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


@dataclass(frozen=True)
class _Handle:
    """What the adapter must remember of a request in flight."""

    sender: Any
    wanted: wire.Wanted


class Adapter:
    """Runs an `LlmEngine` for Triton."""

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        """Load the model.

        Raises:
            RuntimeError: tensorrt_llm is not importable, or a setting has no valid value.
        """
        parameters = _parameters(json.loads(args["model_config"]))
        options = read_options(os.environ, parameters, folder)
        self._exclude_input = parameters.get("exclude_input_in_output", "false").lower() == "true"
        self._always_emit = [name for name in parameters.get("always_emit", "").replace(" ", "").split(",") if name]
        package, llm_args, torch = (_import(name) for name in ("tensorrt_llm", "tensorrt_llm.llmapi.llm_args", "torch"))
        known = llm_args.TorchLlmArgs.model_fields
        sampler = choose_sampler(package.__version__, known, options.sampler_type)
        self._active = _Active({"model": args["model_name"], "version": args["model_version"]}, options.max_batch_size)
        self._engine = LlmEngine(
            package.LLM(**llm_arguments(options, folder, sampler, llm_args.KvCacheConfig)),
            package.SamplingParams,
            options,
            applies_penalties=sampler.applies_penalties,
            to_tensor=lambda array: torch.from_numpy(array.copy()),  # Triton's is read-only
            on_response=self._send,
            on_failure=self._fail,
        )

    def execute(self, requests: list[Any]) -> None:
        """Submit requests; what is refused is answered at once."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._take(request, sender)
            except RefusedError as error:
                _send_error(sender, str(error), queue_full=error.queue_full)

    def finalize(self) -> None:
        """Stop the engine."""
        self._engine.close()

    def _take(self, request: Any, sender: Any) -> None:
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if inputs.get("stop", wire.ABSENT).any():
            if not request.request_id():
                raise RefusedError("Trying to stop a request but request ID is not provided")
            self._engine.cancel(request.request_id())
            sender.send(pb_utils.InferenceResponse(output_tensors=[]), flags=_FINAL)
            return
        parsed, wanted = wire.parse(
            inputs,
            request_id=request.request_id(),
            exclude_input=self._exclude_input,
            is_cancelled=sender.is_cancelled,
        )
        parsed.handle = _Handle(sender, wanted)
        self._engine.submit(parsed)
        self._active.publish(self._engine.active)

    def _send(self, response: Response) -> None:
        handle = response.request.handle
        assert isinstance(handle, _Handle)  # noqa: S101 - set in _take
        tensors = wire.to_tensors(response, handle.wanted)
        for name in self._always_emit:
            tensors.setdefault(name, wire.default_output(name))
        outputs = [pb_utils.Tensor(name, array) for name, array in tensors.items()]
        if response.final:
            self._active.publish(self._engine.active)
        handle.sender.send(pb_utils.InferenceResponse(output_tensors=outputs), flags=_FINAL if response.final else 0)

    def _fail(self, request: Request, reason: str) -> None:
        handle = request.handle
        assert isinstance(handle, _Handle)  # noqa: S101 - set in _take
        self._active.publish(self._engine.active)
        message = f"Executor failed process requestId {request.id} due to the following error: {reason}"
        _send_error(handle.sender, message, apart=True)


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


def _send_error(sender: Any, message: str, *, queue_full: bool = False, apart: bool = False) -> None:
    """Answer with an error. ``apart``: the final flag goes by itself; else a BLS caller that has data would hang."""
    code = pb_utils.TritonError.UNAVAILABLE if queue_full else pb_utils.TritonError.INTERNAL
    response = pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message, code))
    sender.send(response, flags=0 if apart else _FINAL)
    if apart:
        sender.send(flags=_FINAL)


def _parameters(config: dict[str, Any]) -> dict[str, str]:
    """Model parameters; one that still holds its ``${placeholder}`` counts as absent."""
    values = {name: entry["string_value"] for name, entry in config.get("parameters", {}).items()}
    return {name: value for name, value in values.items() if not value.startswith("${")}
