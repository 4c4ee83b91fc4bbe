"""Writes the list of the log's events in docs/reference/metrics-and-events.md from their table.

Run ``python -m tools.log_events_page`` (part of ``make docs``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.generated_part import replaced
from tools.log_events import GROUPS, Event

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "metrics-and-events.md"
PART: Final = "events"


def rendered() -> str:
    """The list as it stands on the page, in groups."""
    groups = ((group, "".join(_line(*each) for each in events.items())) for group, events in GROUPS.items())
    return "".join(f"\n### {group}\n\n{lines}" for group, lines in groups) + "\n"


def _line(name: str, event: Event) -> str:
    kind = " or ".join(event.level) + (", `request_id`" if event.of_request else "")
    return f"- `{name}` ({kind}): {event.means}.{f' **Do**: {event.do}' if event.do else ''}\n"


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), PART, rendered()), encoding="utf-8")
