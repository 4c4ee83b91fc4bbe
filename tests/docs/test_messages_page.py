"""docs/reference/messages.md: each field of a request, each block that is read and each type of error has its row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

from gateway.api.anthropic.messages.protocol import _KINDS, MessagesRequest
from tools.openapi.messages import AnthropicErrorDetails, StopReason

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")


def rows(heading: str, column: int = 1) -> set[str]:
    """The names in one column of the table under a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[column] for line in section.splitlines() if line.startswith("| ")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_field_has_its_row() -> None:
    assert rows("Fields") == set(MessagesRequest.model_fields)


def test_every_block_that_is_read_has_its_row() -> None:
    assert rows("Blocks") >= _KINDS


def test_every_type_of_error_and_reason_to_stop_has_its_row() -> None:
    types = get_args(get_type_hints(AnthropicErrorDetails)["type"])
    assert rows("Errors", 2) == set(types)
    assert set(get_args(StopReason)) <= rows("The message", 2)
