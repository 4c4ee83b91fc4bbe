"""The page has a row for everything that upstream's pages name."""

from __future__ import annotations

import pytest

from tests.tools.coverage.upstream_names import BY_SECTION
from tools.coverage.document import rows_by_section


@pytest.mark.parametrize("section", BY_SECTION)
def test_every_name_of_upstream_s_pages_has_its_row(section: str) -> None:
    rows = [row.name for row in rows_by_section()[section]]
    assert [name for name in BY_SECTION[section] if name not in rows] == []


@pytest.mark.parametrize("section", rows_by_section())
def test_a_name_has_one_row(section: str) -> None:
    rows = [row.name for row in rows_by_section()[section]]
    assert len(rows) == len(set(rows))
