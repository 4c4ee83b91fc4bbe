"""The table of this package's families: ``family_table.yaml``, an entry each, over the grammars beside this module."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from gateway.families.bare_calls import BareCalls
from gateway.families.channel_calls import ChannelCalls
from gateway.families.family import Family
from gateway.families.gemma_calls import GemmaCalls
from gateway.families.harmony import HarmonyCalls, HarmonyFamily
from gateway.families.json_calls import JsonCalls, MessageCalls
from gateway.families.markers import ThinkTags
from gateway.families.model_family import ModelFamily
from gateway.families.named_calls import NamedCalls
from gateway.families.nested_tags import NestedTags
from gateway.families.tagged_calls import TaggedCalls

_GRAMMARS = (
    BareCalls,
    ChannelCalls,
    GemmaCalls,
    HarmonyCalls,
    JsonCalls,
    MessageCalls,
    NamedCalls,
    NestedTags,
    TaggedCalls,
)
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in _GRAMMARS}
_PARTS: Mapping[str, type] = {"tags": ThinkTags}  # fields with fields of their own


def read_table(text: str) -> dict[str, ModelFamily]:
    """Read a table of families; returns them by name, in its order.

    Raises:
        ValueError: when a field is unknown, missing, or of another type than the class has it.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast, and not everywhere
    entries = yaml.load(text, Loader=loader)["families"]  # noqa: S506 - both loaders are safe
    return {name: _family(name, entry) for name, entry in entries.items()}


def _family(name: str, entry: Mapping[str, Any]) -> ModelFamily:
    given, kind = {"name": name, **entry}, ModelFamily
    try:
        if "grammar" in entry:
            given["grammar"] = grammar = _grammar(**entry["grammar"])
            kind = HarmonyFamily if isinstance(grammar, HarmonyCalls) else ModelFamily
        family: ModelFamily = _made(kind, given)
    except ValueError as error:
        raise ValueError(f"The family {name!r} is wrong: {error}") from None
    return family


def _grammar(kind: str = "", **given: Any) -> Any:
    if kind not in _KINDS:
        raise ValueError(f"grammar.kind: is one of {', '.join(_KINDS)}")
    return _made(_KINDS[kind], given, "grammar.")


def _made(kind: type, given: Mapping[str, Any], place: str = "") -> Any:
    """An object of a class, of the fields that are given for it."""
    for name in given.keys() - {field.name for field in dataclasses.fields(kind)}:
        raise ValueError(f"{place}{name}: {kind.__name__} has no such field")
    parts = {name: _made(_PARTS[name], given[name], f"{place}{name}.") for name in _PARTS.keys() & given.keys()}
    try:
        return _adapter(kind).validate_python({**given, **parts})
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{place}{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


_TABLE = read_table(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

THINK = _TABLE["think"]
"""Models that reason between ``<think>`` tags and have no call format that is known here."""

PLAIN = _TABLE["plain"]
"""Chat models that were not taught to call tools, and all that no other family claims."""

CLAIMING: tuple[ModelFamily, ...] = tuple(family for family in _TABLE.values() if family not in (THINK, PLAIN))
"""The families that claim models. Of those that do it equally well the first gets a model: particular signs first."""

FAMILIES: Mapping[str, Family] = _TABLE
"""The families of this package, by name."""
