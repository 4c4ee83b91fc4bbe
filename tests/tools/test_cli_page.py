"""docs/reference/cli.md is what the commands say today."""

from __future__ import annotations

from tools.cli_page import PAGE, render


def test_the_page_has_every_command_and_option() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "\n- `--port` (`9000`): " in page
    assert page == render(), "make docs"
