"""Parts of pages that are written from the code.

A part stands between a comment that begins with its name and says what writes it, and the next ``<!-- end -->``. A page
that is written as a whole says so in a comment that begins with ``Written by``.
"""

from __future__ import annotations

import re
from typing import Final

_PART: Final = r"(?s)(<!-- {name}\b[^>]*-->\n).*?(<!-- end -->)"
_WHOLE: Final = "<!-- Written by "


def replaced(page: str, name: str, text: str) -> str:
    """The page with another text in one of its parts.

    Raises:
        LookupError: the page has no part of that name.
    """
    pattern = re.compile(_PART.format(name=name))
    if not pattern.search(page):
        raise LookupError(f"the page has no part {name!r}")
    return pattern.sub(lambda found: f"{found[1]}{text}{found[2]}", page)


def by_hand(page: str) -> str:
    """Return the part of a page that is written by hand."""
    return "" if _WHOLE in page else re.sub(_PART.format(name=r"\w+"), "", page)
