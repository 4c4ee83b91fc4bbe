"""Prepares a comparison: finds both targets and their facts, and warns of differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from gateway.serving.comparison.facts import (
    PROBE,
    TURNS,
    FactPair,
    TargetFacts,
    compare_facts,
    facts_of,
    generates,
    warnings_of,
)
from gateway_ops.compare.request_lines import RequestFile
from gateway_ops.compare.sampled_requests import Sample
from gateway_ops.compare.targets import Target, TargetAddress, TargetError, find_target, get_json

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """The options of a sample.

    Attributes:
        count: number of requests.
        seed: seed of the requests.
    """

    count: int
    seed: int


@dataclass(frozen=True, slots=True)
class PreparedComparison:
    """A comparison that is ready to run.

    Attributes:
        targets: A and B.
        facts: facts that both report.
        warnings: sentences.
        requests: requests for both.
    """

    targets: tuple[Target, Target]
    facts: list[FactPair]
    warnings: list[str]
    requests: RequestFile | Sample

    def as_json(self) -> dict[str, Any]:
        """Plain values: ``a``, ``b``, ``facts`` and ``warnings``."""
        sides = {
            side: {"url": target.address.shown, "model": target.model}
            for side, target in zip(("a", "b"), self.targets, strict=True)
        }
        return {**sides, "facts": [fact.as_json() for fact in self.facts], "warnings": self.warnings}


async def prepare(
    addresses: tuple[TargetAddress, TargetAddress],
    sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession],
    source: RequestFile | SampleOptions,
) -> PreparedComparison:
    """Find both targets and their facts.

    Args:
        addresses: addresses of A and B.
        sessions: sessions with the keys of A and B.
        source: recorded requests, or the options of a sample.

    Raises:
        TargetError: one target cannot be compared.
    """
    a = await find_target(addresses[0], sessions[0], _TIMEOUT_S)
    b = await find_target(addresses[1], sessions[1], _TIMEOUT_S)
    for each in (a, b):
        if isinstance(source, SampleOptions) and not generates(each.entry):
            what = f"{each.label} does not generate text, and samples are of chats"
            raise TargetError(f"{each.address.side}: {what}: give its requests with --requests")
    of_a, of_b = await _learn(a), await _learn(b)
    facts = compare_facts(of_a, of_b)
    requests = source if isinstance(source, RequestFile) else _sample(source, of_a, of_b)
    return PreparedComparison((a, b), facts, list(_warnings(a, b, facts, requests)), requests)


async def _learn(target: Target) -> TargetFacts:
    """Ask a target about itself."""
    return facts_of(target.entry, await _tokens(target, {"prompt": PROBE}), await _tokens(target, {"messages": TURNS}))


async def _tokens(target: Target, what: Mapping[str, Any]) -> Any:
    """The token ids of a text or a conversation, which vLLM and the gateway report."""
    url, body = f"{target.address.base}/tokenize", {"model": target.model, **what}
    said = await get_json(target.session, url, _TIMEOUT_S, body)
    return said.get("tokens") if said else None


def _sample(made: SampleOptions, a: TargetFacts, b: TargetFacts) -> Sample:
    contexts = [each.context for each in (a, b) if each.context is not None]
    return Sample(made.count, made.seed, a.lacking | b.lacking, min(contexts, default=None))


def _warnings(a: Target, b: Target, facts: list[FactPair], requests: RequestFile | Sample) -> Iterator[str]:
    if a.identity == b.identity:
        yield f"A and B are the same model, {a.label}: differences are random variation of its answers."
    yield from warnings_of(facts)
    if isinstance(requests, Sample):
        for kind, parameter in requests.left_out.items():
            yield f"No request of kind '{kind}' is generated: A or B cannot serve {parameter}."
    elif requests.drawn:
        what = f"{requests.drawn} of {requests.count} requests do not set temperature 0"
        yield (
            f"{what}: their answers may differ by chance. --greedy sets temperature 0, --repeat measures how much A "
            "differs from itself."
        )
