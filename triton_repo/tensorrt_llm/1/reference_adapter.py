"""Between Triton's Python backend and the reference engine: parses, submits, and sends from one engine thread.

Environment, all optional:
    MAX_SEQ_LEN: prompt plus generated tokens; the model's max_position_embeddings by default and at most.
    ENGINE_MAX_BATCH_SIZE: sequences computed together, 8 by default.
    ENGINE_MAX_QUEUE_SIZE: requests that wait for a slot, 64 by default.
    ENGINE_BLAS_THREADS: threads of a matrix product; half the cores by default, 4 at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
import wire
from reference.engine import Limits, ReferenceEngine, Stats
from reference.llama import BLOCK, Llama
from reference.request import RefusedError, Response
from reference.safetensors import ModelError

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_LOG = logging.getLogger("tensorrt_llm")


@dataclass(frozen=True)
class _Handle:
    """What the adapter must remember of a request in flight."""

    sender: Any
    wanted: wire.Wanted


class Adapter:
    """Runs a `ReferenceEngine` for Triton."""

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        """Load the model and start the engine thread.

        Raises:
            ModelError: the folder cannot be served.
            RuntimeError: a setting has no valid value.
        """
        parameters = _parameters(json.loads(args["model_config"]))
        # Half the cores: OpenBLAS's threads wait for each other at every product and collapse when they must share one.
        cores = len(os.sched_getaffinity(0))
        _limit_blas_threads(_setting("ENGINE_BLAS_THREADS", max(1, min(4, cores // 2))))
        model = Llama(folder)
        positions = model.config.max_positions
        limits = Limits(
            max_seq_len=_setting("MAX_SEQ_LEN", positions),
            max_batch_size=_setting("ENGINE_MAX_BATCH_SIZE", 8),
            max_queue_size=_setting("ENGINE_MAX_QUEUE_SIZE", 64),
        )
        if limits.max_seq_len > positions:
            raise ModelError(f"MAX_SEQ_LEN is {limits.max_seq_len}, the model has {positions} positions")
        self._exclude_input = parameters.get("exclude_input_in_output", "false").lower() == "true"
        self._always_emit = [name for name in parameters.get("always_emit", "").replace(" ", "").split(",") if name]
        normalize = parameters.get("normalize_log_probs", "true").lower() == "true"
        self._engine = ReferenceEngine(model, limits, normalize_log_probs=normalize)
        self._metrics = _Metrics({"model": args["model_name"], "version": args["model_version"]})
        self._metrics.publish(self._engine.stats())
        self._wake = threading.Condition()
        self._stopping = False
        self._outbox: list[Response] = []
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Submit requests; what is refused is answered at once."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._take(request, sender)
            except RefusedError as error:
                _send_error(sender, str(error), queue_full=error.queue_full)
        with self._wake:
            self._wake.notify()

    def finalize(self) -> None:
        """Stop the engine thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

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

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._engine.busy)
                if self._stopping:
                    break
            try:
                self._outbox = self._engine.step()
                self._metrics.publish(self._engine.stats())  # first: who sees an answer sees its slot freed
                while self._outbox:
                    self._send(self._outbox[0])
                    del self._outbox[0]
            except Exception:  # noqa: BLE001 - whatever it is, those in flight must hear of it, others be served
                _LOG.exception("engine step failed")
                self._abort("the engine failed")
        self._abort("the model is unloading")

    def _send(self, response: Response) -> None:
        handle = response.request.handle
        assert isinstance(handle, _Handle)  # noqa: S101 - set in _take
        tensors = wire.to_tensors(response, handle.wanted)
        for name in self._always_emit:
            tensors.setdefault(name, wire.default_output(name))
        outputs = [pb_utils.Tensor(name, array) for name, array in tensors.items()]
        handle.sender.send(pb_utils.InferenceResponse(output_tensors=outputs), flags=_FINAL if response.final else 0)

    def _abort(self, reason: str) -> None:
        ended = [response.request for response in self._outbox if response.final]  # the engine has forgotten these
        self._outbox.clear()
        for request in self._engine.abort() + ended:
            handle = request.handle
            assert isinstance(handle, _Handle)  # noqa: S101 - set in _take
            message = f"Executor failed process requestId {request.id} due to the following error: {reason}"
            with contextlib.suppress(pb_utils.TritonModelException):  # its final response may be out already
                _send_error(handle.sender, message, apart=True)


class _Metrics:
    """Gauges under TensorRT-LLM's names (contract section 6.5), set only when they change."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._families: list[Any] = []  # a family must outlive its metrics
        self._gauges: dict[str, Any] = {}
        self._last: dict[str, float] = {}
        families = {
            "request": ("nv_trt_llm_request_metrics", "request_type", "TRT LLM request metrics"),
            "kv": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "TRT LLM KV cache block metrics"),
            "general": ("nv_trt_llm_general_metrics", "general_type", "General TRT LLM metrics"),
        }
        kinds = {
            "request": ("active", "max", "scheduled", "context", "waiting"),
            "kv": ("max", "free", "used", "tokens_per"),
            "general": ("iteration_counter",),
        }
        for group, (name, label, description) in families.items():
            family = pb_utils.MetricFamily(name=name, description=description, kind=pb_utils.MetricFamily.GAUGE)
            self._families.append(family)
            for kind in kinds[group]:
                self._gauges[f"{group}.{kind}"] = family.Metric(labels={**labels, label: kind})

    def publish(self, stats: Stats) -> None:
        """Set every gauge that changed."""
        values: dict[str, float] = {
            "request.active": stats.active,
            "request.max": stats.max_active,
            "request.scheduled": stats.scheduled,
            "request.context": stats.context,
            "request.waiting": stats.waiting,
            "kv.max": stats.kv_blocks_max,
            "kv.free": stats.kv_blocks_max - stats.kv_blocks_used,
            "kv.used": stats.kv_blocks_used,
            "kv.tokens_per": BLOCK,
            "general.iteration_counter": stats.iteration,
        }
        for name, value in values.items():
            if self._last.get(name) != value:
                self._gauges[name].set(value)
        self._last = values


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


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise RuntimeError(f"{name} is {text!r}; it must be a whole number of at least 1")
    return int(text)


def _limit_blas_threads(count: int) -> None:
    """Set the thread count of the OpenBLAS that NumPy already loaded: its environment variables come too late here."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    for path in {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        for symbol in ("openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, symbol):
                getattr(library, symbol)(count)
                break
