"""Writes the list of the log's events in docs/how-to/observability.md from their table.

Run ``python -m tools.log_events_page`` (part of ``make docs``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tools.log_events import GROUPS, Event

PAGE: Final = Path(__file__).parents[1] / "docs" / "how-to" / "observability.md"
_BEGIN: Final = "<!-- events: written by `python -m tools.log_events_page` from tools/log_events.py -->\n"
_END: Final = "<!-- end -->"


def rendered() -> str:
    """The list as it stands on the page, in groups."""
    groups = ((group, "".join(_line(*each) for each in events.items())) for group, events in GROUPS.items())
    return "".join(f"\n### {group}\n\n{lines}" for group, lines in groups) + "\n"


def _line(name: str, event: Event) -> str:
    kind = " or ".join(event.level) + (", `request_id`" if event.of_request else "")
    return f"- `{name}` ({kind}): {event.means}.{f' **Do**: {event.do}' if event.do else ''}\n"


def replaced(page: str) -> str:
    """The page with the list of today."""
    return re.sub(
        f"(?s)({re.escape(_BEGIN)}).*?({re.escape(_END)})", lambda found: found[1] + rendered() + found[2], page
    )


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
