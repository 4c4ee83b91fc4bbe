"""Batched observations end in the same histogram as single ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest

from gateway.telemetry.metrics import BatchedHistogram

# All sums of these are exact: since CPython 3.12 a sum of many floats is rounded once, and not at each of them.
BOUNDS = (1 / 1024, 3 / 1024, 1.0)
VALUES = [0.0, 1 / 1024, 2 / 1024, 3 / 1024, 0.5, 1.0, 1.5, 64.0]


def made(registry: CollectorRegistry) -> Histogram:
    return Histogram("gap", "Gap.", ["model"], buckets=BOUNDS, registry=registry).labels("m")


def lines(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.sampled_from(VALUES), max_size=700))
def test_the_same_as_one_by_one(values: list[float]) -> None:
    single, together = CollectorRegistry(), CollectorRegistry()
    one, batch = made(single), BatchedHistogram(made(together))
    for value in values:
        one.observe(value)
        batch.observe(value)
    batch.flush()
    batch.flush()
    assert lines(together) == lines(single)
