"""Prometheus metrics, in one registry for each application."""

from __future__ import annotations

import collections
import functools
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from gateway.generation.engine import ErrorKind
from gateway.generation.health import STATES, EngineCondition
from gateway.generation.route import EndpointStatus
from gateway.settings import Task
from gateway.telemetry.label_names import LabelNames
from gateway.telemetry.memory import MemoryReading, MemoryState

_TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
_STORE_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0)
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_MOST_NAMES = 100  # clients choose the names of unknown parameters: label values must stay bounded
_MOST_WAITING = 256  # observations that a scrape may miss


class BatchedHistogram:
    """Collects observations of one histogram in a list, and adds them together.

    ``Histogram.observe`` takes a lock and walks over the buckets: microseconds, as much as all other work on a token.
    """

    __slots__ = ("_child", "_handed_over", "_waiting")

    def __init__(self, child: Histogram) -> None:
        """Collect for ``child``, a histogram whose labels are set."""
        self._child = child
        self._handed_over = 0
        self._waiting: list[float] = []

    def count(self) -> int:
        """The number of observations in this process."""
        return self._handed_over + len(self._waiting)

    def observe(self, value: float, times: int = 1) -> None:
        """Add one observation, or several of the same value."""
        if times == 1:
            self._waiting.append(value)
        else:
            self._waiting += [value] * times
        if len(self._waiting) >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Add the collected observations to the histogram."""
        if not self._waiting:
            return
        child = self._child
        bounds: list[float] = child._upper_bounds  # noqa: SLF001 - prometheus_client has no call for many values
        counts = collections.Counter(map(functools.partial(bisect_left, bounds), self._waiting))
        for index, count in counts.items():
            child._buckets[index].inc(count)  # noqa: SLF001 - as above
        child._sum.inc(sum(self._waiting))  # noqa: SLF001 - as above
        self._handed_over += len(self._waiting)
        self._waiting.clear()


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """A served model at one moment, summed over all worker processes.

    Attributes:
        endpoints: its endpoints, if there are several.
        running: generations in its engines.
        waiting: generations that wait for their turn.
        limit: most running generations; None without a limit.
        task: its task; None before discovery.
    """

    endpoints: Sequence[EndpointStatus] = ()
    running: int = 0
    waiting: int = 0
    limit: int | None = None
    task: Task | None = None


@dataclass(frozen=True, slots=True)
class ModelMetrics:
    """The metrics of one served model, without a look-up of labels in the hot path."""

    model: str
    in_flight: Gauge
    ttft: Histogram
    inter_token: BatchedHistogram
    prompt_tokens: Counter
    completion_tokens: Counter
    surplus_tokens: Counter
    accepted_tokens: Counter
    rejected_tokens: Counter
    cancelled: Counter
    spared_tokens: Counter
    elsewhere: Counter
    failures: Mapping[str, Counter]
    waits: Histogram
    rejected: Mapping[str, Counter]
    recalled_tokens: Counter
    tokenized_tokens: Counter


class Metrics:
    """The gateway's own metrics. Times are in seconds.

    Where ``PROMETHEUS_MULTIPROC_DIR`` is set, as it is for workers, all processes keep their counts in that folder, and
    any of them renders the sum of all: counts of ended ones stay, their gauges go.

    Attributes:
        requests: requests with a response, by model, endpoint (a route, never a raw path) and HTTP status.
        in_flight: generations that run now, by model.
        ttft: from the arrival of a request to the engine's first response with a token, by model.
        inter_token: time between responses of the engine divided by their tokens, by model.
        prompt_tokens: ids sent, by model.
        completion_tokens: ids generated as usage reports them, by model.
        surplus_tokens: ids generated after a stop match and before the cancel took effect, by model.
        predicted_tokens: ids of clients' predictions for whole answers, by model and outcome: those that the answer
            begins with are ``accepted``, the others ``rejected``.
        cancelled: generations ended because the client left, by model.
        spared_tokens: ids that those could still have been given, by their limits, by model: an upper bound.
        elsewhere: requests that failed before any token and were sent to another endpoint, by model.
        failures: generations that an engine ended with an error, by model and kind.
        waits: of a generation for its turn among others of its model, where it had to, by model.
        rejected: requests that were rejected with 429 instead of waiting longer, by model and reason.
        tokenized_tokens: ids of prompts, by model and by where they came from: the ``cache`` of earlier prompts or the
            ``tokenizer``.
        token_cache: bytes of that cache that hold something; all processes share it.
        store_operations: calls of the store by operation and outcome.
        store_times: of calls of the store, by operation.
        store_bytes: of all documents and logs of the store, at the last write.
        store_removed: documents that this gateway has removed for their age or for the size.
        memory: resident, of all processes and their helpers.
        overload: 1 while memory is beyond the limit of that name.
        connections_rejected: connections that were rejected with 503 or cut off, by reason: ``connections``, ``files``.
        overload_rejected: requests that were rejected for want of memory.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        model = ["model"]
        self.requests = Counter(
            "gateway_requests", "Requests with a response.", ["model", "endpoint", "status"], registry=registry
        )
        self.in_flight = Gauge(
            "gateway_requests_in_flight", "Running generations.", model, registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self.ttft = Histogram(
            "gateway_time_to_first_token_seconds",
            "Time from the arrival of a request to its first token.",
            model,
            buckets=_TTFT_BUCKETS,
            registry=registry,
        )
        self.inter_token = Histogram(
            "gateway_inter_token_seconds",
            "Time per output token after the first.",
            model,
            buckets=_GAP_BUCKETS,
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "gateway_prompt_tokens", "Prompt tokens sent to the engine.", model, registry=registry
        )
        self.completion_tokens = Counter("gateway_completion_tokens", "Ids generated.", model, registry=registry)
        self.surplus_tokens = Counter(
            "gateway_surplus_tokens",
            "Tokens generated between the match of a stop string and the cancellation.",
            model,
            registry=registry,
        )
        self.predicted_tokens = Counter(
            "gateway_predicted_tokens", "Tokens of predictions, by outcome.", ["model", "outcome"],
            registry=registry,
        )  # fmt: skip
        self.cancelled = Counter(
            "gateway_requests_cancelled", "Generations whose client disconnected.", model, registry=registry
        )
        self.spared_tokens = Counter(
            "gateway_cancelled_tokens_upper_bound", "Tokens that cancelled generations could still have produced.",
            model, registry=registry,
        )  # fmt: skip
        self.elsewhere = Counter(
            "gateway_retries_elsewhere",
            "Requests retried on another endpoint before the first token.",
            model,
            registry=registry,
        )
        self.failures = Counter(
            "gateway_engine_failures", "Generations that failed in an engine.", ["model", "kind"], registry=registry
        )
        self.waits = Histogram(
            "gateway_queue_seconds", "Time in the admission queue.", model, buckets=_TTFT_BUCKETS, registry=registry
        )
        self.rejected = Counter(
            "gateway_queue_refusals", "Requests rejected or dropped by the admission queue.", ["model", "reason"],
            registry=registry,
        )  # fmt: skip
        self.tokenized_tokens = Counter(
            "gateway_tokenized_tokens", "Prompt tokens, by source.", ["model", "source"],
            registry=registry,
        )  # fmt: skip
        self.token_cache = Gauge(
            "gateway_token_cache_bytes", "Size of the token id cache.", registry=registry,
            multiprocess_mode="livemax",
        )  # fmt: skip
        self.store_operations = Counter(
            "gateway_store_operations", "Operations on the store.", ["operation", "outcome"], registry=registry
        )
        self.store_times = Histogram(
            "gateway_store_operation_seconds",
            "Duration of an operation on the store.",
            ["operation"],
            buckets=_STORE_BUCKETS,
            registry=registry,
        )
        self.store_bytes = Gauge(
            "gateway_store_bytes", "Size of all documents and logs in the store.", registry=registry,
            multiprocess_mode="mostrecent",
        )  # fmt: skip
        self.store_removed = Counter(
            "gateway_store_removed_documents", "Documents removed by age or by size of the store.", registry=registry
        )
        self.memory = Gauge(
            "gateway_memory_bytes", "Resident memory of the gateway's processes.", registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self._memory_limit = Gauge(
            "gateway_memory_limit_bytes", "Memory limit of the gateway's processes.", registry=registry,
            multiprocess_mode="livemin",
        )  # fmt: skip
        self.overload = Gauge(
            "gateway_overload_state", "1 while memory is above a limit.", ["state"], registry=registry,
            multiprocess_mode="livemax",
        )  # fmt: skip
        self.connections_rejected = Counter(
            "gateway_connections_rejected", "Connections without room.", ["reason"], registry=registry
        )
        self.overload_rejected = Counter(
            "gateway_overload_refused_requests", "Requests rejected because of low memory.", registry=registry
        )
        self._ignored = Counter(
            "gateway_ignored_parameters", "Unknown parameters that were ignored.", ["model", "parameter"],
            registry=registry,
        )  # fmt: skip
        self._reloads = Counter("gateway_settings_reloads", "Reloads of the settings.", ["outcome"], registry=registry)
        for outcome in ("applied", "refused"):
            self._reloads.labels(outcome)
        self._reload_ok = Gauge(
            "gateway_settings_last_reload_successful", "0 if the current settings were rejected, else 1.",
            registry=registry, multiprocess_mode="livemin",
        )  # fmt: skip
        self._reload_ok.set(1)
        self._names = LabelNames(_MOST_NAMES)

    def for_model(self, model: str) -> ModelMetrics:
        """Return the metrics of one served model, at zero before the first count."""
        return ModelMetrics(
            model=model,
            in_flight=self.in_flight.labels(model),
            ttft=self.ttft.labels(model),
            inter_token=BatchedHistogram(self.inter_token.labels(model)),
            prompt_tokens=self.prompt_tokens.labels(model),
            completion_tokens=self.completion_tokens.labels(model),
            surplus_tokens=self.surplus_tokens.labels(model),
            accepted_tokens=self.predicted_tokens.labels(model, "accepted"),
            rejected_tokens=self.predicted_tokens.labels(model, "rejected"),
            cancelled=self.cancelled.labels(model),
            spared_tokens=self.spared_tokens.labels(model),
            elsewhere=self.elsewhere.labels(model),
            failures={kind.value: self.failures.labels(model, kind.value) for kind in ErrorKind},
            waits=self.waits.labels(model),
            rejected={reason: self.rejected.labels(model, reason) for reason in ("full", "late")},
            recalled_tokens=self.tokenized_tokens.labels(model, "cache"),
            tokenized_tokens=self.tokenized_tokens.labels(model, "tokenizer"),
        )

    def count_ignored(self, model: str, parameters: Sequence[str]) -> None:
        """Count ignored parameters; beyond a bounded number of names all are ``other``."""
        if not parameters:
            return
        for parameter, count in collections.Counter(map(self._counted_as, parameters)).items():
            self._ignored.labels(model, parameter).inc(count)

    def _counted_as(self, parameter: str) -> str:
        return self._names.label(parameter) if _SAFE_NAME.fullmatch(parameter) else "other"

    def note_memory(self, state: MemoryState, reading: MemoryReading, rejected: int) -> None:
        """Note a sample of the memory.

        Args:
            state: state that follows from the sample.
            reading: memory of this process.
            rejected: requests that were rejected for lack of memory since the last sample.
        """
        self.memory.set(reading.own)
        self._memory_limit.set(reading.limit)
        for name in ("soft", "hard"):
            self.overload.labels(name).set(state == name)
        self.overload_rejected.inc(rejected)

    def count_reload(self, *, ok: bool) -> None:
        """Count a reload of the settings; ``ok``: whether they are in force."""
        self._reloads.labels("applied" if ok else "refused").inc()
        self._reload_ok.set(1 if ok else 0)

    def render(
        self,
        readiness: Mapping[str, EngineCondition],
        models: Mapping[str, ModelSnapshot] = MappingProxyType({}),
    ) -> tuple[bytes, str]:
        """Render all metrics as Prometheus text; returns the text and its content type.

        Args:
            readiness: the condition of each served model, of all processes together.
            models: the current snapshot of each served model.
        """
        now = CollectorRegistry()
        now.register(_CurrentState(readiness, models))
        counted, folder = self.registry, os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if folder:
            counted = CollectorRegistry()
            MultiProcessCollector(counted, folder)  # type: ignore[no-untyped-call]
        return generate_latest(counted) + generate_latest(now), CONTENT_TYPE_LATEST


class _CurrentState(Collector):
    """Collects the readiness of models at each scrape, so that an ended process leaves no stale value."""

    def __init__(self, readiness: Mapping[str, EngineCondition], models: Mapping[str, ModelSnapshot]) -> None:
        self._readiness = readiness
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        ready = GaugeMetricFamily("gateway_model_ready", "1 when the model can be served.", labels=["model"])
        degraded = GaugeMetricFamily(
            "gateway_model_degraded", "1 while a worker does not serve the model.", labels=["model"]
        )
        share = GaugeMetricFamily(
            "gateway_model_failing_share", "Share of the model's requests that fail in its engine.", labels=["model"]
        )
        state = GaugeMetricFamily("gateway_model_state", "1 for the model's state.", labels=["model", "state"])
        for model, condition in self._readiness.items():
            ready.add_metric([model], float(condition.ready))
            degraded.add_metric([model], float(bool(condition.degraded)))
            share.add_metric([model], condition.share)
            for name in STATES:
                state.add_metric([model, name], float(condition.state == name))
        yield from (ready, degraded, share, state)
        yield from self._queues()
        if any(now.endpoints for now in self._models.values()):
            yield from self._of_endpoints()

    def _queues(self) -> Iterator[GaugeMetricFamily]:
        running = GaugeMetricFamily(
            "gateway_generations_running", "Generations running in the engine.", labels=["model"]
        )
        waiting = GaugeMetricFamily(
            "gateway_generations_waiting", "Generations waiting in the admission queue.", labels=["model"]
        )
        limit = GaugeMetricFamily("gateway_generations_limit", "Limit of running generations.", labels=["model"])
        task = GaugeMetricFamily("gateway_model_task", "1 for the model's task.", labels=["model", "task"])
        for model, now in self._models.items():
            if now.task is not None:
                task.add_metric([model, now.task], 1)
            running.add_metric([model], now.running)
            waiting.add_metric([model], now.waiting)
            if now.limit is not None:
                limit.add_metric([model], now.limit)
        yield from (running, waiting, limit, task)

    def _of_endpoints(self) -> Iterator[GaugeMetricFamily]:
        labels = ["model", "endpoint"]
        up = GaugeMetricFamily("gateway_endpoint_ready", "1 when the endpoint accepts requests.", labels=labels)
        state = GaugeMetricFamily("gateway_endpoint_state", "1 for the endpoint's state.", labels=[*labels, "state"])
        share = GaugeMetricFamily(
            "gateway_endpoint_failing_share", "Share of the endpoint's requests that fail.", labels=labels
        )
        running = GaugeMetricFamily(
            "gateway_endpoint_requests_in_flight", "Requests running on the endpoint.", labels=labels
        )
        for model, now in self._models.items():
            for each in now.endpoints:
                up.add_metric([model, each.address], float(each.condition.ready))
                share.add_metric([model, each.address], each.condition.share)
                for name in STATES:
                    state.add_metric([model, each.address, name], float(each.condition.state == name))
                running.add_metric([model, each.address], each.requests)
        yield from (up, state, share, running)
