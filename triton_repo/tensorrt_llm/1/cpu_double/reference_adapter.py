"""Between Triton's Python backend and the reference engine: parses, submits, and sends from one engine thread.

Environment, all optional:
    MAX_SEQ_LEN: prompt plus generated tokens; the model's max_position_embeddings by default and at most. Also the
        model's parameter ``max_seq_len``, over which it wins.
    ENGINE_MAX_BATCH_SIZE: sequences computed together, 8 by default.
    ENGINE_MAX_QUEUE_SIZE: requests that wait for a slot, 64 by default.
    ENGINE_KV_REUSE_BLOCKS: KV-cache blocks of finished sequences that are kept for reuse, 128 by default.
    ENGINE_LORA_CACHE_BYTES: weights of LoRA adapters that are kept, 1 GiB by default; also the model's parameter
        ``lora_cache_host_memory_bytes``, over which it wins.
    ENGINE_BLAS_THREADS: threads of a matrix product; half the cores by default, 4 at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import triton_python_backend_utils as pb_utils

from cpu_double.guides import load_guided_decoder
from cpu_double.kv_cache import BLOCK
from cpu_double.llama import Llama
from cpu_double.reference_engine import Limits, ReferenceEngine, Stats
from cpu_double.safetensors import ModelError
from wire.additions import DRAFT, LORA, PROMPT_TABLE, TOP_P_DECAY
from wire.base_adapter import BaseAdapter
from wire.response import Response

_LOG = logging.getLogger("tensorrt_llm")
_FAMILIES = {  # name, label and description
    "request": ("nv_trt_llm_request_metrics", "request_type", "TRT LLM request metrics"),
    "kv": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "TRT LLM KV cache block metrics"),
    "general": ("nv_trt_llm_general_metrics", "general_type", "General TRT LLM metrics"),
}
_METRICS_S = (
    0.1  # a gauge's new value costs as much as an answer: gauges that change with each step are set at this interval
)


class Adapter(BaseAdapter):
    """Runs a `ReferenceEngine` for Triton."""

    _takes = frozenset((LORA, PROMPT_TABLE, DRAFT, TOP_P_DECAY))

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        """Load the model and start the engine thread.

        Raises:
            ModelError: the folder cannot be served.
            RuntimeError: a setting has no valid value.
        """
        super().__init__(args)
        # Half the cores: OpenBLAS's threads wait for each other at every product and collapse when they must share one.
        cores = len(os.sched_getaffinity(0))
        _limit_blas_threads(_setting("ENGINE_BLAS_THREADS", max(1, min(4, cores // 2))))
        model = Llama(folder)
        self._gathers_logits = self._is_true("gather_logits", "false")
        # Two defaults of TensorRT-LLM 1.2.1, for a configuration that leaves them open.
        normalize, reuse = self._is_true("normalize_log_probs", "true"), self._is_true("enable_kv_cache_reuse", "true")
        guided = load_guided_decoder(folder, model.config.vocab)
        self._decoder, self._guided = guided, guided is not None
        self._engine: ReferenceEngine = ReferenceEngine(
            model, self._limits(model, reuse=reuse), normalize_log_probs=normalize, guided=guided
        )
        self._metrics = _Metrics(self._labels)
        self._metrics.publish(self._engine.stats())
        self._wake = threading.Condition()
        self._stopping = False
        self._outbox: list[Response] = []
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def execute(self, requests: Iterable[pb_utils.InferenceRequest]) -> None:
        """Submit requests and wake the engine."""
        super().execute(requests)
        with self._wake:
            self._wake.notify()

    def finalize(self) -> None:
        """Stop the engine thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()
        if self._decoder is not None:
            self._decoder.close()

    def _limits(self, model: Llama, *, reuse: bool) -> Limits:
        positions = model.config.max_positions
        max_seq_len = _setting("MAX_SEQ_LEN", self._parameters.get("max_seq_len", positions))
        if max_seq_len > positions:
            raise ModelError(f"MAX_SEQ_LEN is {max_seq_len}, the model has {positions} positions")
        if (tokens := self._parameters.get("tokens_per_block", str(BLOCK))) != str(BLOCK):
            raise RuntimeError(f"tokens_per_block is {tokens}; the reference engine has {BLOCK}")
        return Limits(
            max_seq_len=max_seq_len,
            max_batch_size=_setting("ENGINE_MAX_BATCH_SIZE", 8),
            max_queue_size=_setting("ENGINE_MAX_QUEUE_SIZE", 64),
            kv_reuse_blocks=_setting("ENGINE_KV_REUSE_BLOCKS", 128) if reuse else 0,
            lora_cache_bytes=_setting(
                "ENGINE_LORA_CACHE_BYTES", self._whole_number("lora_cache_host_memory_bytes", str(1 << 30))
            ),
        )

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._engine.busy)
                if self._stopping:
                    break
            try:
                self._outbox = self._engine.step()
                self._metrics.publish(self._engine.stats())  # first: a client that has its answer finds its slot free
                while self._outbox:
                    self._send(self._outbox[0])
                    del self._outbox[0]
            except Exception:  # noqa: BLE001 - requests in flight must hear of any error
                _LOG.exception("engine step failed")
                self._abort("the engine failed")
        self._abort("the model is unloading")

    def _abort(self, reason: str) -> None:
        ended = [response.request for response in self._outbox if response.final]  # the engine has forgotten these
        self._outbox.clear()
        for request in self._engine.abort() + ended:
            # A client that cannot be reached must not delay the others.
            with contextlib.suppress(pb_utils.TritonModelException):
                self._fail(request, reason)


class _Metrics:
    """Gauges under TensorRT-LLM's names (wire contract 6.5), set only when they change."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels
        self._families = {  # a family must outlive its metrics
            key: pb_utils.MetricFamily(name=name, description=description, kind=pb_utils.MetricFamily.GAUGE)
            for key, (name, _, description) in _FAMILIES.items()
        }
        self._gauges: dict[tuple[str, str], pb_utils.Metric] = {}
        self._last: dict[tuple[str, str], float] = {}
        self._requests: tuple[int, ...] = ()
        self._due = 0.0

    def publish(self, stats: Stats) -> None:
        """Set every changed gauge: immediately when requests start, end or move on, or none runs, else every 0.1 s."""
        now = time.monotonic()
        requests = (stats.active, stats.scheduled, stats.context, stats.waiting)
        if stats.active and requests == self._requests and now < self._due:
            return
        self._requests, self._due = requests, now + _METRICS_S
        values: dict[tuple[str, str], float] = {
            ("request", "active"): stats.active,
            ("request", "max"): stats.max_active,
            ("request", "scheduled"): stats.scheduled,
            ("request", "context"): stats.context,
            ("request", "waiting"): stats.waiting,
            ("kv", "max"): stats.kv_blocks_max,
            ("kv", "free"): stats.kv_blocks_max - stats.kv_blocks_used,
            ("kv", "used"): stats.kv_blocks_used,
            ("kv", "tokens_per"): BLOCK,
            ("kv", "reused"): stats.kv_blocks_reused,
            ("kv", "fraction"): stats.kv_blocks_used / stats.kv_blocks_max,
            ("general", "iteration_counter"): stats.iteration,
        }
        for key, value in values.items():
            if self._last.get(key) != value:
                self._gauge(*key).set(value)
        self._last = values

    def _gauge(self, family: str, kind: str) -> pb_utils.Metric:
        if (family, kind) not in self._gauges:
            labels = {**self._labels, _FAMILIES[family][1]: kind}
            self._gauges[family, kind] = self._families[family].Metric(labels=labels)
        return self._gauges[family, kind]


def _setting(name: str, default: int | str) -> int:
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
