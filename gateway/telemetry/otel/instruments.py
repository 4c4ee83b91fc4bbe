"""OpenTelemetry's metrics of requests, taken once at the end of each: a token costs nothing."""

from __future__ import annotations

from opentelemetry.metrics import Meter

from gateway.telemetry.otel import names
from gateway.telemetry.traces import Facts


class Instruments:
    """The histograms."""

    def __init__(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(
            names.REQUEST_DURATION, "s", "Duration of a request.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
        )  # fmt: skip
        self._first_token = meter.create_histogram(
            names.TIME_TO_FIRST_TOKEN, "s", "Arrival of a request to its first token.",
            explicit_bucket_boundaries_advisory=names.FIRST_TOKEN_BOUNDS,
        )  # fmt: skip
        self._per_token = meter.create_histogram(
            names.TIME_PER_OUTPUT_TOKEN, "s", "Time per token after the first, mean of a request.",
            explicit_bucket_boundaries_advisory=names.PER_TOKEN_BOUNDS,
        )  # fmt: skip
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE, "{token}", "Tokens of a request.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDS,
        )  # fmt: skip

    def record(self, operation: str, duration_s: float, facts: Facts, error: str | None) -> None:
        """Take one request at its end.

        Args:
            operation: of the conventions.
            duration_s: since its arrival.
            facts: what is known of it.
            error: how it failed; None where it did not.
        """
        attributes = {names.OPERATION: operation, names.PROVIDER: names.PROVIDER_VALUE}
        if facts.model is not None:
            attributes |= {names.REQUEST_MODEL: facts.model, names.RESPONSE_MODEL: facts.model}
        failed = attributes if error is None else {**attributes, names.ERROR_TYPE: error}
        self._duration.record(duration_s, failed)
        if facts.ttft_s is not None:
            self._first_token.record(facts.ttft_s, attributes)
            further = (facts.completion_tokens or 0) - 1
            if further > 0 and error is None:
                self._per_token.record((duration_s - facts.ttft_s) / further, attributes)
        for kind, count in (("input", facts.prompt_tokens), ("output", facts.completion_tokens)):
            if count is not None:
                self._tokens.record(count, {**attributes, names.TOKEN_TYPE: kind})
