"""The generated pages are what the code and the tests say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.settings_validation import all_keys
from tools.coverage import document, settings_document
from tools.coverage.row import Row

ROOT = Path(__file__).parents[3]


def test_the_coverage_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "coverage.md").read_text() == document.render(ROOT / "tests")


def test_the_page_of_options_is_up_to_date() -> None:
    page = settings_document.render()
    assert (ROOT / "docs" / "reference" / "deployment-options.md").read_text() == page
    assert [key for key in all_keys(DeploymentSettings) if f"| `{key}` |" not in page] == []


def test_a_row_whose_test_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "CLIENTS", (Row("--x", "here", "clients/test_nothing.py::test_gone"),))
    with pytest.raises(LookupError, match="test_gone"):
        document.render(ROOT / "tests")
