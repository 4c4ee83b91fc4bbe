"""A gateway that is scraped repeatedly."""

from __future__ import annotations

import time
from typing import Any

from gateway_ops.chat.chat_server import ChatServer
from gateway_ops.chat.streamed_answer import ChatError
from gateway_ops.top import SLOW_S
from gateway_ops.top.activity import Listed, activity, listed_by_name
from gateway_ops.top.scrapes import Interval, Scrape

_TIMEOUT_S = 10.0


class WatchedGateway:
    """Scrapes a gateway, for the first time on construction.

    Attributes:
        base: the gateway's base URL.

    Args:
        url: the base URL, with or without ``/v1``.
        api_key: a bearer key; None for none.
        slow_s: as of ``activity``.

    Raises:
        ChatError: the server cannot be scraped, or is not a gateway.
    """

    def __init__(self, url: str, api_key: str | None, slow_s: float = SLOW_S) -> None:
        self._slow_s = slow_s
        self._server = ChatServer(url, api_key, _TIMEOUT_S)
        self.base = self._server.http.base
        self._last = self._scrape()

    def look(self) -> dict[str, Any]:
        """Scrape the gateway; returns its activity since the last scrape, see ``activity``.

        Raises:
            ChatError: the gateway cannot be scraped.
        """
        interval = Interval(self._last, self._scrape())
        self._last = interval.now
        try:
            return activity(interval, self._listed(), self._slow_s, self._server.health())
        except (AttributeError, KeyError, TypeError, ValueError):  # malformed labels or values
            raise ChatError(f"{self.base} has no metrics of this gateway.") from None

    def _scrape(self) -> Scrape:
        page = self._server.fetch("/metrics").text
        try:
            scrape = Scrape.parse(page, time.monotonic())
        except (ValueError, KeyError, IndexError):  # what the parser raises for some lines that are not metrics
            scrape = None
        if scrape is None or "gateway_model_ready" not in scrape.families:
            raise ChatError(f"{self.base}/metrics has no metrics of this gateway.")
        return scrape

    def _listed(self) -> Listed | None:
        try:
            return listed_by_name(self._server.models())
        except ChatError:
            return None
