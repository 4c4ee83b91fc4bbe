"""Bounds the number of client-chosen names in metric labels."""

from __future__ import annotations


class LabelNames:
    """The first names that came; all further names are ``other``.

    Args:
        most: most names.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name itself, or ``other`` once there are as many names as allowed."""
        if name not in self._names:
            if len(self._names) >= self._most:
                return "other"
            self._names.add(name)
        return name
