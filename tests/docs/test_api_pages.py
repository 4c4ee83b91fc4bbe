"""The pages of the APIs: every field, item, block and error has its row; the settings that they show are settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from gateway.api.anthropic.messages.protocol import _KINDS as BLOCKS
from gateway.api.anthropic.messages.protocol import MessagesRequest
from gateway.api.openai.responses.input_items import _KINDS as ITEMS
from gateway.api.openai.responses.protocol import ResponsesRequest
from gateway.settings import Settings
from gateway.settings.encoder_settings import EncoderSettings
from tools.openapi.messages import AnthropicErrorDetails, StopReason

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
EMBEDDINGS = (REFERENCE / "embeddings.md").read_text(encoding="utf-8")


def rows(page: str, heading: str, column: int = 1) -> set[str]:
    """The names in one column of the table under a heading."""
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[column] for line in section.splitlines() if line.startswith("| ")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(("page", "request_"), [("messages", MessagesRequest), ("responses", ResponsesRequest)])
def test_every_field_has_its_row(page: str, request_: Any) -> None:
    assert rows(page, "Fields") == set(request_.model_fields)


def test_every_item_and_block_that_is_read_has_its_row() -> None:
    assert rows("responses", "Items") >= set(ITEMS)
    assert rows("messages", "Blocks") >= BLOCKS


def test_every_type_of_error_and_reason_to_stop_has_its_row() -> None:
    types = get_args(get_type_hints(AnthropicErrorDetails)["type"])
    assert rows("messages", "Errors", 2) == set(types)
    assert set(get_args(StopReason)) <= rows("messages", "The message", 2)


def test_settings_of_the_table_are_settings() -> None:
    found = re.findall(r"(?m)^\|.*\| `(\{.*\})` \| (yes)? ?\|$", EMBEDDINGS)
    assert len(found) == 15
    for text, _ in found:
        settings = EncoderSettings.model_validate(yaml.safe_load(text))
        fills = any(each.inputs for each in settings.input_types.values())
        assert not fills or settings.default_input_type in settings.input_types, "an input that each request needs"


def test_the_file_is_settings() -> None:
    (file,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", EMBEDDINGS)
    (model,) = Settings.model_validate(yaml.safe_load(file)).models
    assert len(file.splitlines()) <= 12
    assert model.task == "embed"
    assert model.encoder.input_types["query"].prefix == "query: "
