"""docs/reference/conformance.md is what the checks say today."""

from __future__ import annotations

from pathlib import Path

from tools.conformance_page import render


def test_the_page_has_every_check() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
    assert page.read_text(encoding="utf-8") == render(), "make docs"
