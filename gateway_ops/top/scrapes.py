"""Scrapes of metrics, and the growth between two of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scrape:
    """A page of metrics.

    Attributes:
        at: time of the scrape, in seconds.
        families: the names of all metrics, also of those without samples.
        samples: samples by name, each with its labels.
    """

    at: float
    families: frozenset[str]
    samples: Mapping[str, list[tuple[Labels, float]]]

    @staticmethod
    def parse(text: str, at: float) -> Scrape:
        """Read Prometheus' text format; samples without a finite number are left out.

        Raises:
            ValueError: the text does not have this format.
        """
        families: set[str] = set()
        samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for family in text_string_to_metric_families(text):
            families.add(family.name)
            for sample in family.samples:
                if math.isfinite(sample.value):
                    samples[sample.name].append((sample.labels, sample.value))
        return Scrape(at, frozenset(families), dict(samples))

    def matching(self, name: str, **labels: str) -> Iterator[tuple[Labels, float]]:
        """The samples with all given labels."""
        for found, value in self.samples.get(name, ()):
            if labels.items() <= found.items():
                yield found, value

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of samples; None without samples."""
        values = [value for _, value in self.matching(name, **labels)]
        return sum(values) if values else None

    def names(self, name: str, label: str, **labels: str) -> list[str]:
        """The values of a label, in the page's order."""
        return list(dict.fromkeys(found[label] for found, _ in self.matching(name, **labels) if label in found))


@dataclass(frozen=True, slots=True)
class Interval:
    """The time between two scrapes.

    Attributes:
        before: the earlier one.
        now: the later one.
    """

    before: Scrape
    now: Scrape

    @property
    def seconds(self) -> float:
        """The length of the interval in seconds."""
        return max(self.now.at - self.before.at, 1e-9)

    def grown(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The growth of counters, summed by the values of a label; a counter that fell has restarted at 0."""
        before = {frozenset(found.items()): value for found, value in self.before.matching(name, **labels)}
        sums: dict[str, float] = defaultdict(float)
        for found, value in self.now.matching(name, **labels):
            earlier = before.get(frozenset(found.items()), 0.0)
            sums[found.get(label, "")] += value - earlier if value >= earlier else value
        return dict(sums)

    def rate(self, name: str, **labels: str) -> float | None:
        """The growth of counters per second; None where the page has none of them."""
        if self.now.value(name, **labels) is None:
            return None
        return sum(self.grown(name, "", **labels).values()) / self.seconds

    def above(self, value: float, name: str, **labels: str) -> tuple[int, int, float] | None:
        """Count new observations of a histogram above a value; None without new ones.

        Returns:
            The number above, the number of all, and the bound that was used: the value, or the next bound of the
            histogram's buckets, or its last.
        """
        *bounds, (_, everything) = self._buckets(name, **labels) or [(math.inf, 0.0)]
        if not everything or not bounds:
            return None
        bound, below = next(((bound, count) for bound, count in bounds if bound >= value), bounds[-1])
        return max(0, round(everything - below)), round(everything), bound  # a gateway may have begun anew meanwhile

    def _buckets(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """Upper bounds of a histogram's buckets with the growth of their counts, which include the lower ones."""
        grown = self.grown(f"{name}_bucket", "le", **labels)
        return sorted((float(bound), count) for bound, count in grown.items())

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """Estimate a quantile of a histogram's new observations, as PromQL's ``histogram_quantile`` does.

        Between the bounds of a bucket it is interpolated; above the last bound it is that bound.
        """
        buckets = self._buckets(name, **labels)
        wanted = share * buckets[-1][1] if buckets else 0.0
        if not wanted:
            return None
        low, below = 0.0, 0.0
        for bound, count in buckets:
            if count >= wanted:
                return low if math.isinf(bound) else low + (bound - low) * (wanted - below) / (count - below)
            low, below = bound, count
        return low
