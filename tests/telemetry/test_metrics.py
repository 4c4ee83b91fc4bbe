"""Metrics: what clients choose never becomes an unbounded set of labels."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.metrics import Metrics


def test_names_of_ignored_parameters_are_bounded_and_plain() -> None:
    metrics = Metrics()
    for index in range(300):
        metrics.count_ignored("m", [f"name_{index}"])
    metrics.count_ignored("m", ["name_0"])
    metrics.count_ignored("m", ['evil"} 1\n'])
    text, content_type = metrics.render({})
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    counts = {
        sample.labels["parameter"]: sample.value
        for sample in families["gateway_ignored_parameters"].samples
        if sample.name.endswith("_total")
    }
    assert len(counts) == 101
    assert (counts["name_0"], counts["other"]) == (2, 201)
    assert content_type.startswith("text/plain")


def test_a_served_model_shows_at_zero() -> None:
    metrics = Metrics()
    metrics.for_model("m")
    text = metrics.render({})[0].decode()
    assert 'gateway_requests_in_flight{model="m"} 0.0' in text
    assert 'gateway_engine_failures_total{kind="timeout",model="m"} 0.0' in text


def test_the_page_lists_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics-and-events.md").read_text()
    families = text_string_to_metric_families(Metrics().render({})[0].decode())
    names = [f"{family.name}_total" if family.type == "counter" else family.name for family in families]
    own = [name for name in names if not name.endswith("_created")]  # prometheus_client's, of each counter
    assert len(own) > 10
    assert [name for name in own if f"`{name}`" not in page] == []
