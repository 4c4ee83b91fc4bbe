"""Metrics: each has its row in the table of the page, and batched observations are those one by one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.metrics import BatchedHistogram, Metrics


def test_the_page_lists_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics-and-events.md").read_text()
    families = text_string_to_metric_families(Metrics().render({})[0].decode())
    names = [f"{family.name}_total" if family.type == "counter" else family.name for family in families]
    own = [name for name in names if not name.endswith("_created")]  # prometheus_client's, of each counter
    assert len(own) > 10
    assert [name for name in own if f"`{name}`" not in page] == []


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
