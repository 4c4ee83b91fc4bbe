"""Metrics of callers, by their names."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

from gateway.http.access.caller import Caller

_MOST_NAMES: Final = 1000
_MOST_TOKEN_NAMES: Final = 100  # an identity provider may know any number of names
_OTHER: Final = "other"


class KeyMetrics:
    """Counts of the callers that have a name; those beyond a bounded number of names are ``other`` together.

    Args:
        registry: of the application's metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("gateway_key_requests", "Requests by key.", ["key"], registry=registry)
        self._tokens = Counter("gateway_key_tokens", "Tokens by key and kind.", ["key", "kind"], registry=registry)
        self._limited = Counter(
            "gateway_key_limited", "Requests rejected by a limit of their key.", ["key", "limit"], registry=registry
        )
        self._names: set[str] = set()
        self._token_names = 0

    def request(self, who: Caller) -> None:
        """Count a request."""
        if who.name:
            self._requests.labels(self._label(who)).inc()

    def tokens(self, who: Caller, prompt: int, completion: int) -> None:
        """Count tokens that were used."""
        if who.name:
            label = self._label(who)
            self._tokens.labels(label, "prompt").inc(prompt)
            self._tokens.labels(label, "completion").inc(completion)

    def limited(self, who: Caller, limit: str) -> None:
        """Count a request that a limit did not allow."""
        if who.name:
            self._limited.labels(self._label(who), limit).inc()

    def _label(self, who: Caller) -> str:
        if who.name in self._names:
            return who.name
        of_token = who.id.startswith("jwt:")
        if len(self._names) >= _MOST_NAMES or (of_token and self._token_names >= _MOST_TOKEN_NAMES):
            return _OTHER
        self._names.add(who.name)
        self._token_names += of_token
        return who.name
