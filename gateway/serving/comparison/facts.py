"""Facts of two servers before a comparison: tokenizer, context, family and abilities."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.text.harmless import one_line

PROBE = "The 2 naïve cats didn't   say 1,024 words.\n\tGrüße 🙂 世界 مرحبا def f(x): return {x}"
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]
# By the field of our gateway's description of a model; another server's has none of them.
_OF_GATEWAY = {
    "dialect": "path",
    "Triton model": "triton_model",
    "family": "family",
    "streams": "streams",
    "log-probs": "logprobs",
    "guides": "guide_types",
    "estimated": "estimates",
    "lost": "losses",
}
_OTHER_MODEL = ("tokenizer", "chat template", "context", "family")
_LONGEST_VALUE = 200
_LONGEST_NAME = 64
_LONGEST_WAY = 32


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The facts that one server reports.

    Attributes:
        values: texts by name of the fact; None for facts that are not reported.
        context: tokens of prompt and answer together; None where it is not reported.
        abilities: how each parameter is served, by its name; None where it is not reported.
    """

    values: Mapping[str, str | None]
    context: int | None
    abilities: Mapping[str, str] | None

    @property
    def lacking(self) -> frozenset[str]:
        """The parameters that the server reports as not served."""
        return frozenset(name for name, how in (self.abilities or {}).items() if how == "impossible")


@dataclass(frozen=True, slots=True)
class FactPair:
    """One fact of both servers.

    Attributes:
        name: name of the fact.
        a: A's text; None where it reports none.
        b: B's text; None where it reports none.
    """

    name: str
    a: str | None
    b: str | None

    @property
    def same(self) -> bool | None:
        """Whether both texts are equal; None where one is missing."""
        return None if self.a is None or self.b is None else self.a == self.b

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"what": self.name, "a": self.a, "b": self.b, "same": self.same}


def facts_of(entry: Mapping[str, Any], of_text: Any, of_turns: Any) -> TargetFacts:
    """Read the facts of a server.

    Args:
        entry: the model's object of ``GET /v1/models/NAME``; empty without one.
        of_text: the target's ids of `PROBE`; anything but a list of numbers where not reported.
        of_turns: the target's ids of `TURNS`, in the same form.
    """
    length = entry.get("max_model_len")
    context = length if isinstance(length, int) and length > 0 else None
    values = {
        "tokenizer": _tokens(of_text),
        "chat template": _tokens(of_turns),
        "context": None if context is None else f"{context} tokens",
    }
    gateway = entry.get("gateway")
    reported = gateway if isinstance(gateway, dict) else {}
    values |= {name: _shown(reported.get(field)) for name, field in _OF_GATEWAY.items()}
    return TargetFacts(values, context, _abilities(entry.get("capabilities")))


def generates(entry: Mapping[str, Any]) -> bool:
    """Tell whether a model of a list generates text: all do but a gateway's models of another task."""
    gateway = entry.get("gateway")
    return not isinstance(gateway, Mapping) or gateway.get("task") in (None, "generate")


def warnings_of(facts: Iterable[FactPair]) -> Iterator[str]:
    """Write a warning for each fact that tells that the two are different models."""
    for fact in facts:
        if fact.name in _OTHER_MODEL and fact.same is False:
            yield f"The models differ in their {fact.name}: A has {fact.a}, B has {fact.b}."


def compare_facts(a: TargetFacts, b: TargetFacts) -> list[FactPair]:
    """List the facts of both in one order; abilities only where they differ, or where one reports none."""
    facts = [FactPair(name, a.values[name], b.values[name]) for name in a.values]
    if a.abilities is None or b.abilities is None:
        reported = [None if each.abilities is None else "reported" for each in (a, b)]
        return [*facts, FactPair("parameters", *reported)]
    return [*facts, *_abilities_that_differ(a.abilities, b.abilities)]


def _abilities_that_differ(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[FactPair]:
    for name in sorted(a.keys() | b.keys()):
        fact = FactPair(f"parameter {name}", a.get(name, "not known"), b.get(name, "not known"))
        if not fact.same:
            yield fact


def _abilities(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    ways = {one_line(name)[:_LONGEST_NAME]: each.get("how") for name, each in value.items() if isinstance(each, dict)}
    return {name: one_line(str(how))[:_LONGEST_WAY] for name, how in ways.items()}


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value))[:_LONGEST_VALUE]


def _tokens(ids: Any) -> str | None:
    """Describe the token ids of a probe by their number and a digest."""
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        return None
    return f"{len(ids)} tokens of a probe, {hashlib.sha256(repr(ids).encode()).hexdigest()[:8]}"
