"""The slim page: the metrics by which requests are routed, which endpoint pickers read every 50 ms.

The page is written by hand, because ``prometheus_client`` takes a hundred times as long for a few metrics. A picker
takes the first sample that fits, of gauges that have their ``# TYPE``; so the families for pickers have one sample, for
all models and endpoints of this gateway together.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.generation.health import EngineCondition

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class ModelQueue(NamedTuple):
    """Running and waiting requests of a served model, summed over all worker processes.

    Attributes:
        running: generations in its engines.
        waiting: generations that wait for their turn.
        adapter: whether every request carries a LoRA adapter.
    """

    running: int = 0
    waiting: int = 0
    adapter: bool = False


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The load that the engines behind this gateway last reported, as sums.

    Attributes:
        waiting: requests in the engines' own queues.
        used_blocks: used blocks of the KV caches.
        max_blocks: blocks of the KV caches; 0 where no engine reports them.
    """

    waiting: int = 0
    used_blocks: int = 0
    max_blocks: int = 0

    def __add__(self, other: EngineLoad) -> EngineLoad:
        return EngineLoad(
            self.waiting + other.waiting, self.used_blocks + other.used_blocks, self.max_blocks + other.max_blocks
        )


class Engines(NamedTuple):
    """The last reported metrics of the engines behind this gateway.

    Attributes:
        load: the load of all engines.
        families: the engines' own metric families, in Prometheus' text format.
    """

    load: EngineLoad = EngineLoad()
    families: str = ""


def load_families(models: Mapping[str, ModelQueue], engines: EngineLoad) -> str:
    """Write the metric families for endpoint pickers: one sample each, in Prometheus' text format.

    Every generation counts once: generations in an engine's queue count as waiting, as those in this gateway's queue.
    """
    admitted = sum(model.running for model in models.values())
    queued = min(engines.waiting, admitted)  # the engines' figure is up to a second or two old
    waiting = sum(model.waiting for model in models.values()) + queued
    text = _gauge(
        "gateway_num_requests_waiting", "Generations waiting, in the gateway or in an engine.", [("", waiting)]
    )
    text += _gauge("gateway_num_requests_running", "Generations running in an engine.", [("", admitted - queued)])
    if engines.max_blocks:
        used = engines.used_blocks / engines.max_blocks
        text += _gauge(
            "gateway_kv_cache_usage", "Used share of the engines' KV cache blocks, from 0 to 1.", [("", used)]
        )
    adapters = {name: model for name, model in models.items() if model.adapter}
    if adapters:
        running = ",".join(name for name, model in adapters.items() if model.running)
        waits = ",".join(name for name, model in adapters.items() if model.waiting)
        labels = _labels(max_lora=str(len(adapters)), running_lora_adapters=running, waiting_lora_adapters=waits)
        text += _gauge("gateway_lora_requests_info", "Models with adapters, by state.", [(labels, time.time())])
    return text


def slim_page(readiness: Mapping[str, EngineCondition], models: Mapping[str, ModelQueue], engines: Engines) -> str:
    """Write the whole page.

    Args:
        readiness: the condition of each served model.
        models: the current queue of each served model.
        engines: the engines behind the models.
    """
    ready = [(_labels(model=name), each.ready) for name, each in readiness.items()]
    flight = [(_labels(model=name), model.running + model.waiting) for name, model in models.items()]
    return (
        load_families(models, engines.load)
        + _gauge("gateway_model_ready", "1 when the model can be served.", ready)
        + _gauge("gateway_requests_in_flight", "Running generations.", flight)
        + engines.families
    )


def _gauge(name: str, text: str, samples: Iterable[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {text}\n# TYPE {name} gauge\n"]
    lines += [f"{name}{labels} {float(value)}\n" for labels, value in samples]
    return "".join(lines)


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"


def escaped(value: str) -> str:
    """Escape a label's value for Prometheus' text format."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
