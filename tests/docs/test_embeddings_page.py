"""The settings that the page of encoders shows are settings, and those of the table are of known shapes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gateway.settings import Settings
from gateway.settings.encoder_settings import EncoderSettings

PAGE = (Path(__file__).parents[2] / "docs/reference/embeddings.md").read_text(encoding="utf-8")


def test_settings_of_the_table_are_settings() -> None:
    rows = re.findall(r"(?m)^\|.*\| `(\{.*\})` \| (yes)? ?\|$", PAGE)
    assert len(rows) == 15
    for text, _ in rows:
        settings = EncoderSettings.model_validate(yaml.safe_load(text))
        fills = any(each.inputs for each in settings.input_types.values())
        assert not fills or settings.default_input_type in settings.input_types, "an input that each request needs"


def test_the_file_is_settings() -> None:
    (file,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE)
    (model,) = Settings.model_validate(yaml.safe_load(file)).models
    assert len(file.splitlines()) <= 12
    assert model.task == "embed"
    assert model.encoder.input_types["query"].prefix == "query: "
