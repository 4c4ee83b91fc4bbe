"""The tables of docs/how-to/fleet-sizing.md are what the code says today."""

from __future__ import annotations

import pytest

from tools import fleet_page


def test_the_smallest_fleets_are_those_of_the_page() -> None:
    rows = fleet_page.rows_of(fleet_page.PAGE.read_text(), "scale")
    assert len(rows) == len(fleet_page.RATES)
    assert rows[:2] == [fleet_page.scale_row(rate) for rate in fleet_page.RATES[:2]]


@pytest.mark.long
def test_so_are_all_the_others() -> None:
    page = fleet_page.PAGE.read_text()
    assert fleet_page.rows_of(page, "scale") == [fleet_page.scale_row(rate) for rate in fleet_page.RATES]
    assert fleet_page.rows_of(page, "variations") == [fleet_page.variation_row(*each) for each in fleet_page.VARIATIONS]
