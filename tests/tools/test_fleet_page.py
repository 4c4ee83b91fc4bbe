"""The tables of docs/how-to/fleet-sizing.md are what the code says today."""

from __future__ import annotations

import pytest

from tools import fleet_page


def test_the_smallest_fleets_are_those_of_the_page() -> None:
    rows = fleet_page.rows_of(fleet_page.PAGE.read_text(), "scale")
    assert len(rows) == len(fleet_page.RATES)
    assert rows[:2] == [fleet_page.scale_row(rate) for rate in fleet_page.RATES[:2]]


@pytest.mark.long
def test_so_are_the_largest_and_every_other_variation() -> None:
    page = fleet_page.PAGE.read_text()
    assert fleet_page.rows_of(page, "scale")[-1] == fleet_page.scale_row(fleet_page.RATES[-1])
    rows = fleet_page.rows_of(page, "variations")
    assert rows[::2] == [fleet_page.variation_row(*each) for each in fleet_page.VARIATIONS[::2]]
    assert len(rows) == len(fleet_page.VARIATIONS)
