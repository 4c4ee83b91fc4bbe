"""docs/reference/families.md is what the table of families makes it."""

from __future__ import annotations

from tests.families import page


def test_the_page_is_as_the_table_is() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.render(text) == text, "run `make docs`"
