"""The plan of a load: requests, lengths and arrivals."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Common words, one token each in most vocabularies: a prompt's true length comes back as usage.
# fmt: off
WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
    "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side",
    "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law",
    "car", "city", "name", "team", "minute", "idea", "body", "back", "parent", "face", "level", "office", "door",
)
# fmt: on


class PlanError(ValueError):
    """A plan that cannot be run; the message says why."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A range of token counts, from which each request draws one evenly.

    Attributes:
        least: the smallest, at least 1.
        most: the largest.
    """

    least: int
    most: int

    @staticmethod
    def parse(text: str) -> Lengths:
        """Read ``200`` or ``100-500``.

        Raises:
            PlanError: the text is neither.
        """
        first, dash, second = text.partition("-")
        if not first.isdigit() or (dash and not second.isdigit()):
            raise PlanError(f"{text!r} is not a length: give tokens such as 200, or a range such as 100-500")
        lengths = Lengths(int(first), int(second or first))
        if not 1 <= lengths.least <= lengths.most:
            raise PlanError(f"{text!r} is not a length: a length is at least 1, and a range must not go down")
        return lengths

    def draw(self, source: random.Random) -> int:
        """Draw a number of tokens, from ``least`` to ``most`` inclusive."""
        return source.randint(self.least, self.most)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load: how many requests, of what lengths, and when.

    Attributes:
        streams: requests that run at the same time, each followed by the next; None where requests arrive by ``rate``.
        rate: requests a second, arriving at random (Poisson); None where there are ``streams``.
        requests: number of requests; None sends them until ``duration_s`` has passed.
        duration_s: seconds of sending after the warm-up; None sends until ``requests`` were sent.
        warm_up_s: at the beginning, whose requests are sent and not counted.
        in_flight: most requests at the same time when they arrive by rate; what arrives beyond it is counted, not sent.
        timeout_s: seconds for one request.
        prompt: tokens of a prompt, about.
        answer: tokens of an answer, at most.
        ignore_eos: whether answers go on to their limit; servers that do not know ``ignore_eos`` may reject it.
        seed: the seed of prompts, lengths and arrivals.
    """

    streams: int | None = 8
    rate: float | None = None
    requests: int | None = None
    duration_s: float | None = 30.0
    warm_up_s: float = 2.0
    in_flight: int = 1000
    timeout_s: float = 300.0
    prompt: Lengths = Lengths(200, 200)
    answer: Lengths = Lengths(128, 128)
    ignore_eos: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.streams is None) == (self.rate is None):
            raise PlanError("give either streams or a rate")
        if self.requests is None and self.duration_s is None:
            raise PlanError("give a number of requests or a duration, so that the load ends")

    def bodies(self, model: str) -> Iterator[dict[str, Any]]:
        """Yield endless request bodies, equal for equal seeds; prompts begin differently, so that no cache helps."""
        source = random.Random(self.seed)  # noqa: S311 - lengths and words
        while True:
            words = [source.choice(WORDS) for _ in range(self.prompt.draw(source))]
            body: dict[str, Any] = {
                "model": model,
                "messages": [{"role": "user", "content": " ".join(words)}],
                "max_tokens": self.answer.draw(source),
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            if self.ignore_eos:
                body["ignore_eos"] = True
            yield body

    def gaps(self) -> Iterator[float]:
        """Yield endless seconds between arrivals, for a plan with a rate."""
        source = random.Random(self.seed + 1)  # noqa: S311 - arrivals
        while True:
            yield source.expovariate(self.rate or 1.0)
