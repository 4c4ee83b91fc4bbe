"""gateway.example.yaml is what the table of settings makes of it."""

from __future__ import annotations

from gateway.settings import Settings
from gateway.settings.settings_validation import all_keys
from tools import settings_example


def test_the_file_is_the_one_that_the_table_makes() -> None:
    assert settings_example.FILE.read_text(encoding="utf-8") == settings_example.document()


def test_examples_are_of_settings_that_there_are() -> None:
    assert settings_example.EXAMPLES.keys() <= set(all_keys(Settings))


def test_the_page_shows_the_smallest_file() -> None:
    lines = (settings_example.ROOT / "gateway.minimal.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    shown = "".join(f"    {line}" for line in lines if not line.startswith("#"))
    assert shown in settings_example.PAGE.read_text(encoding="utf-8")
