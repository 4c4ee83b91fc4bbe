"""Sampling parameters as a version's engine takes them, and which of those that came it does not heed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.doubles.llmapi.versions import PREFIX, Version

DEFAULT_MAX_TOKENS = 32
_RANDOMNESS = ("temperature", "top_p", "top_k")
_PENALTIES = ("frequency_penalty", "presence_penalty")


@dataclass(frozen=True, slots=True)
class Sampling:
    """What one request asks of the engine.

    Attributes:
        max_tokens: as it came, not yet cut to the context.
        greedy: whether every token is the likeliest one.
        seed: None where none came, or the engine does not heed it.
        effective: parameters that the engine heeds, by their short names.
        ignored: inputs that ask for something and change nothing.
    """

    max_tokens: int
    greedy: bool
    seed: int | None
    effective: dict[str, Any]
    ignored: dict[str, Any]


def read_sampling(version: Version, inputs: dict[str, Any]) -> Sampling:
    """Take the sampling parameters of a request, out of its inputs by their whole names."""
    given = {name.removeprefix(PREFIX): value for name, value in inputs.items() if name.startswith(PREFIX)}
    greedy = _is_greedy(version, given)
    ignored_names = set(_RANDOMNESS) - _greedy_switches(version, given) if greedy else set()
    ignored_names |= set() if version.seeds and not greedy else {"seed"}
    ignored_names |= set() if version.penalties else {name for name in _PENALTIES if given.get(name)}
    effective = {name: value for name, value in given.items() if name not in ignored_names}
    return Sampling(
        max_tokens=given.get("max_tokens", DEFAULT_MAX_TOKENS),
        greedy=greedy,
        seed=effective.get("seed"),
        effective={**effective, "greedy": greedy},
        ignored={name: value for name, value in given.items() if name in ignored_names},
    )


def _is_greedy(version: Version, given: dict[str, Any]) -> bool:
    if not version.checks_ranges:
        return given.get("top_k") in {None, 1} and given.get("top_p") in {None, 0.0}
    return not given.keys() & set(_RANDOMNESS) or bool(_greedy_switches(version, given))


def _greedy_switches(version: Version, given: dict[str, Any]) -> set[str]:
    """Which of the parameters that came make a request greedy."""
    neutral = {"top_k": 1, "top_p": 0.0, **({"temperature": 0.0} if version.checks_ranges else {})}
    return {name for name, value in neutral.items() if given.get(name) == value}
