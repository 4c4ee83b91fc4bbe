"""The generated pages are what the code and the tests say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.settings_validation import all_keys
from tools.coverage import document, settings_document
from tools.coverage.row import Row
from tools.generated_part import replaced

ROOT = Path(__file__).parents[3]


def test_the_coverage_page_is_up_to_date() -> None:
    page = document.PAGE.read_text()
    assert page == replaced(page, document.PART, document.render(ROOT / "tests")), "make docs"


def test_the_page_of_options_is_up_to_date() -> None:
    page = settings_document.PAGE.read_text()
    assert page == replaced(page, settings_document.PART, settings_document.render()), "make docs"
    assert [key for key in all_keys(DeploymentSettings) if f"| `{key}` |" not in page] == []


def test_a_row_whose_test_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "CLIENTS", (Row("--x", "here", "clients/test_nothing.py::test_gone"),))
    with pytest.raises(LookupError, match="test_gone"):
        document.render(ROOT / "tests")
