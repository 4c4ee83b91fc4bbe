"""docs/reference/responses.md: every field of a request and every item that is read has its row."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.api.openai.responses.input_items import _KINDS
from gateway.api.openai.responses.protocol import ResponsesRequest

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "responses.md").read_text(encoding="utf-8")


def rows(heading: str) -> set[str]:
    """The names in the first column of the table under a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_field_has_its_row() -> None:
    assert rows("Fields") == set(ResponsesRequest.model_fields)


def test_every_item_that_is_read_has_its_row() -> None:
    assert set(_KINDS) <= rows("Items")
