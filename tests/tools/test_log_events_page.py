"""docs/reference/metrics-and-events.md lists the log's events as their table has them."""

from __future__ import annotations

from tools import log_events_page
from tools.generated_part import replaced


def test_the_page_has_every_event() -> None:
    page = log_events_page.PAGE.read_text(encoding="utf-8")
    assert "\n- `engine_failure` (warning or error, `request_id`): " in page
    assert page == replaced(page, log_events_page.PART, log_events_page.rendered()), "make docs"
