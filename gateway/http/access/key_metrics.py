"""Metrics of callers, by their names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from gateway.http.access.caller import Caller
from gateway.telemetry.label_names import LabelNames


class KeyMetrics:
    """Counts requests and tokens of named callers; beyond a bounded number of names all are ``other``.

    Args:
        registry: of the application's metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("gateway_key_requests", "Requests by key.", ["key"], registry=registry)
        self._tokens = Counter("gateway_key_tokens", "Tokens by key and kind.", ["key", "kind"], registry=registry)
        self._limited = Counter(
            "gateway_key_limited", "Requests rejected by a limit of their key.", ["key", "limit"], registry=registry
        )
        self._names = LabelNames(1000)
        self._token_names = LabelNames(100)  # an identity provider may know any number of names

    def request(self, caller: Caller) -> None:
        """Count a request."""
        if caller.name:
            self._requests.labels(self._label(caller)).inc()

    def tokens(self, caller: Caller, prompt: int, completion: int) -> None:
        """Count used tokens."""
        if caller.name:
            label = self._label(caller)
            self._tokens.labels(label, "prompt").inc(prompt)
            self._tokens.labels(label, "completion").inc(completion)

    def limited(self, caller: Caller, limit: str) -> None:
        """Count a request that a limit rejected."""
        if caller.name:
            self._limited.labels(self._label(caller), limit).inc()

    def _label(self, caller: Caller) -> str:
        return (self._token_names if caller.id.startswith("jwt:") else self._names).label(caller.name)
