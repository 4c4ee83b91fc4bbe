"""The pages for operators: each says whom it serves, and their tables fit on a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("configuration", "coverage", "deploy-compose", "deployment-options", "deployments", "load-testing")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_with_its_readers(page: str) -> None:
    title, *lines = (DOCS / f"{page}.md").read_text().splitlines()
    first = next(line for line in lines if line and not line.startswith("<!--"))
    assert title.startswith("# ")
    assert first.startswith("For ")


@pytest.mark.parametrize("page", PAGES)
def test_rows_are_short(page: str) -> None:
    rows = [line for line in (DOCS / f"{page}.md").read_text().splitlines() if line.startswith("|")]
    assert [row for row in rows if len(row) >= 160] == []
