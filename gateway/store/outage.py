"""A log line when a store goes away, and one when it is back, and none between."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class Outage:
    """Whether a store is away, told once."""

    def __init__(self, name: str) -> None:
        """Begin without one.

        Args:
            name: of the store, in log lines; without a password.
        """
        self._name = name
        self._away = False

    def begin(self, reason: object) -> None:
        """Tell that the store cannot be used, unless that was told."""
        if not self._away:
            _log.error("the store cannot be used: %s: %s", self._name, reason, extra={"event": "store_unavailable"})
        self._away = True

    def end(self) -> None:
        """Tell that the store is back, where it was away."""
        if self._away:
            _log.warning("the store can be used again: %s", self._name, extra={"event": "store_available"})
        self._away = False
