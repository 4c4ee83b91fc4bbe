"""Observations of a load, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gateway.serving.comparison.durations import Durations


@dataclass(slots=True)
class LoadTally:
    """The observations of all measured requests.

    Attributes:
        sent: requests.
        completed: complete answers.
        failed: failed requests, by kind of failure.
        dropped: arrivals that were not sent, because too many requests were in flight.
        prompt_tokens: tokens of completed requests' prompts, by usage; None where the server sends none.
        completion_tokens: tokens of completed answers, by usage, else by events.
        first: from a request (by rate: from its arrival) to its first token.
        between: between events with text.
        whole: from a request to the end of its answer.
        in_flight: requests that run now.
        events: events with text of completed requests.
        streamed: events with text in the measured time, of every request.
        answered: requests that were completed in the measured time, also those that were sent before it.
    """

    sent: int = 0
    completed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int = 0
    first: Durations = field(default_factory=Durations)
    between: Durations = field(default_factory=Durations)
    whole: Durations = field(default_factory=Durations)
    in_flight: int = 0
    events: int = 0
    streamed: int = 0
    answered: int = 0

    def as_json(self, seconds: float) -> dict[str, Any]:
        """Summarise the observations; None for values that were not measured.

        Args:
            seconds: the measured time, in which throughput is counted: from the end of the warm-up until nothing more
                is sent, or the last answer has ended.
        """
        span = max(seconds, 1e-9)
        each = self.completion_tokens / self.events if self.events else 1.0  # some servers send several in an event
        return {
            "seconds": round(seconds, 3),
            "requests": {
                "sent": self.sent,
                "completed": self.completed,
                "failed": dict(self.failed.most_common()),
                "not_sent": self.dropped,
            },
            "tokens": {"prompt": self.prompt_tokens, "completion": self.completion_tokens},
            "requests_per_s": round(self.answered / span, 3) if self.answered else None,
            "completion_tokens_per_s": round(self.streamed * each / span, 3) if self.streamed else None,
            "time_to_first_token_ms": self.first.as_json(),
            "inter_token_ms": self.between.as_json(),
            "end_to_end_ms": self.whole.as_json(),
        }
