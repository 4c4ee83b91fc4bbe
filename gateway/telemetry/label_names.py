"""Bounds the number of client-chosen names in metric labels."""

from __future__ import annotations


class LabelNames:
    """The first names that came; all further names are ``other``.

    Args:
        limit: most names.
    """

    def __init__(self, limit: int) -> None:
        self._most = limit
        self._names: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name itself, or ``other`` once there are as many names as allowed."""
        if name not in self._names:
            if len(self._names) >= self._most:
                return "other"
            self._names.add(name)
        return name
