"""A double of the part of llm-d's endpoint picker that reads metrics, by the rules of its version 0.10.

Facts from llm-d/llm-d-router, commit ebab687 of 2026-08-22, folder pkg/epp/framework/plugins/datalayer:
extractor/metrics/{factories,spec,loraspec,extractor}.go and source/metrics, which parses as Prometheus' library does.

- A specification is a name with labels; a sample fits that has those labels among its own. Of those that fit the one
  with the latest timestamp counts, and of equal ones, such as all without a timestamp, the first.
- Only gauges and counters have a value; of a family without its ``# TYPE`` it is 0, in silence. A second ``# TYPE``
  or ``# HELP`` of a family is an error of the whole page.
- An empty specification switches a value off. One that finds nothing is an error, and what was known stays; of
  adapters it is none, because servers show them once there are some.
- Of the samples about adapters the one with the largest value counts, which is a time.
- The engine is the one that the pod's label names, else the default engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

LABEL: Final = "llm-d.ai/engine-type"
OLD_LABEL: Final = "inference.networking.k8s.io/engine-type"
SPECS: Final = ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "cacheBlockSizeSpec", "cacheNumBlocksSpec")
BUILT_IN: Final = {
    "triton-tensorrt-llm": {
        "queuedRequestsSpec": "nv_trt_llm_request_metrics{request_type=waiting}",
        "runningRequestsSpec": "nv_trt_llm_request_metrics{request_type=scheduled}",
        "kvUsageSpec": "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
        "cacheBlockSizeSpec": "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
        "cacheNumBlocksSpec": "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
    },
}
_SPEC: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^}]*)\})?\s*")
_PAIR: Final = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*\"?([^\",}\s]*)\"?\s*")


class PageError(Exception):
    """The page cannot be parsed."""


@dataclass
class Read:
    """What the picker knows of an endpoint after a scrape: values and errors by the names of specifications."""

    values: dict[str, float] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    max_adapters: int = 0
    errors: list[str] = field(default_factory=list)


class Picker:
    """Reads pages as an endpoint picker with a configuration of the kind EndpointPickerConfig does."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        (extractor,) = [each for each in config["plugins"] if each["type"] == "core-metrics-extractor"]
        parameters = extractor["parameters"]
        self._engines = BUILT_IN | {each["name"]: each for each in parameters["engineConfigs"]}
        self._default = parameters.get("defaultEngine", "vllm")
        assert self._default in self._engines, f"defaultEngine {self._default!r} is no engine"
        for engine in self._engines.values():
            for name in (*SPECS, "loraSpec"):
                _parsed(engine.get(name, ""))

    def read(self, page: str, labels: Mapping[str, str]) -> Read:
        """What a page tells of a pod with some labels."""
        families = _families(page)
        engine = self._engines[labels.get(LABEL) or labels.get(OLD_LABEL) or self._default]
        read = Read()
        for name in SPECS:
            spec = _parsed(engine.get(name, ""))
            if spec is None:
                continue
            found = max(_fitting(spec, families), key=lambda sample: float(sample.timestamp or 0), default=None)
            if found is None:
                read.errors.append(name)
            else:
                read.values[name] = found.value
        if (spec := _parsed(engine.get("loraSpec", ""))) is not None:
            _read_adapters(max(_fitting(spec, families), key=lambda sample: sample.value, default=None), read)
        return read


def _read_adapters(sample: Sample | None, read: Read) -> None:
    if sample is not None:
        read.active = {name.strip() for name in sample.labels.get("running_lora_adapters", "").split(",")} - {""}
        read.waiting = {name.strip() for name in sample.labels.get("waiting_lora_adapters", "").split(",")} - {""}
        read.max_adapters = int(sample.labels.get("max_lora") or 0)


def _parsed(spec: str) -> tuple[str, dict[str, str]] | None:
    if not spec:
        return None
    match = _SPEC.fullmatch(spec)
    assert match, f"not a valid metric specification: {spec!r}"
    pairs = [_PAIR.fullmatch(pair) for pair in (match[2] or "").split(",") if pair.strip()]
    assert all(pairs), f"invalid label pair in {spec!r}"
    return match[1], {pair[1]: pair[2] for pair in pairs if pair}


def _fitting(spec: tuple[str, dict[str, str]], families: Mapping[str, list[Sample]]) -> list[Sample]:
    name, labels = spec
    return [sample for sample in families.get(name, ()) if labels.items() <= sample.labels.items()]


def _families(page: str) -> dict[str, list[Sample]]:
    said = [tuple(line.split(" ")[:3]) for line in page.splitlines() if line.startswith(("# HELP ", "# TYPE "))]
    if len(said) > len(set(said)):
        raise PageError("a family is described twice")
    families: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(page):
        known = family.type in {"gauge", "counter"}
        for sample in family.samples:
            families.setdefault(sample.name, []).append(sample if known else sample._replace(value=0.0))
    return families
