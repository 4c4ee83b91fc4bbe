"""Metrics: each has its row in the table of the page."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.metrics import Metrics


def test_the_page_lists_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics-and-events.md").read_text()
    families = text_string_to_metric_families(Metrics().render({})[0].decode())
    names = [f"{family.name}_total" if family.type == "counter" else family.name for family in families]
    own = [name for name in names if not name.endswith("_created")]  # prometheus_client's, of each counter
    assert len(own) > 10
    assert [name for name in own if f"`{name}`" not in page] == []
