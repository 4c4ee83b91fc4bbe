"""The pages and files that are generated are what the code and the tests say today."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings import Settings
from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.settings_validation import all_keys
from tools import cli_page, conformance_page, log_events_page, settings_example
from tools.coverage import document, settings_document
from tools.coverage.row import Row
from tools.generated_part import replaced

ROOT = Path(__file__).parents[2]


def test_pages_and_files_are_what_is_generated() -> None:
    events, served, options = (each.PAGE.read_text() for each in (log_events_page, document, settings_document))
    found = {
        "commands": cli_page.PAGE.read_text() == cli_page.render(),
        "conformance": (ROOT / "docs" / "reference" / "conformance.md").read_text() == conformance_page.render(),
        "log events": events == replaced(events, log_events_page.PART, log_events_page.rendered()),
        "served": served == replaced(served, document.PART, document.render(ROOT / "tests")),
        "options": options == replaced(options, settings_document.PART, settings_document.render()),
        "settings": settings_example.FILE.read_text() == settings_example.document(),
    }
    assert found == dict.fromkeys(found, True), "make docs"


def test_pages_have_a_row_for_each_command_event_and_key() -> None:
    assert "\n- `--port` (`9000`): " in cli_page.PAGE.read_text()
    assert "\n- `engine_failure` (warning or error, `request_id`): " in log_events_page.PAGE.read_text()
    options = settings_document.PAGE.read_text()
    assert [key for key in all_keys(DeploymentSettings) if f"| `{key}` |" not in options] == []
    assert settings_example.EXAMPLES.keys() <= set(all_keys(Settings))
    lines = (ROOT / "gateway.minimal.yaml").read_text().splitlines(keepends=True)
    assert "".join(f"    {line}" for line in lines if not line.startswith("#")) in settings_example.PAGE.read_text()


def test_a_row_whose_test_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "CLIENTS", (Row("--x", "here", "clients/test_nothing.py::test_gone"),))
    with pytest.raises(LookupError, match="test_gone"):
        document.render(ROOT / "tests")
