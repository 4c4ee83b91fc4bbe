"""A pattern for any of many texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


def any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Compile a pattern that finds the leftmost of many texts, the longest of those that begin there.

    Texts with a common beginning share a branch of the pattern. A plain alternation of a thousand reserved tokens would
    try them one by one at each character that begins one of them.

    Args:
        texts: texts to find; empty ones are ignored.

    Returns:
        The pattern; None when there is nothing to find.
    """
    tree: dict[str, Any] = {}
    for text in filter(None, texts):
        branch = tree
        for character in text:
            branch = branch.setdefault(character, {})
        branch[""] = {}  # one ends here
    return re.compile(_source(tree)) if tree else None


def _source(tree: dict[str, Any]) -> str:
    """The pattern of what may follow; longer texts go first."""
    branches = []
    for first, following in tree.items():
        if not first:
            continue
        head, rest = re.escape(first), following
        while len(rest) == 1 and "" not in rest:  # nothing to choose from
            ((character, rest),) = rest.items()
            head += re.escape(character)
        branches.append(head + _source(rest) if rest.keys() - {""} else head)
    if not branches:
        return ""
    if len(branches) == 1 and "" not in tree:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if '' in tree else ''}"
