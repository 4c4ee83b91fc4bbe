"""The table of families in ``family_table.yaml``, an entry each, with the grammars of this package."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from gateway.text.families.bare_calls import BareCalls
from gateway.text.families.channel_calls import ChannelCalls
from gateway.text.families.family import Family
from gateway.text.families.gemma_calls import GemmaCalls
from gateway.text.families.harmony import HarmonyCalls
from gateway.text.families.json_calls import JsonCalls, NamedCalls
from gateway.text.families.markers import ThinkTags
from gateway.text.families.model_family import ModelFamily
from gateway.text.families.nested_tags import NestedTags
from gateway.text.families.tagged_calls import TaggedCalls

_GRAMMARS = (BareCalls, ChannelCalls, GemmaCalls, HarmonyCalls, JsonCalls, NamedCalls, NestedTags, TaggedCalls)
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in _GRAMMARS}


def read_table(text: str) -> dict[str, ModelFamily]:
    """Read a table of families by name, in its order.

    Raises:
        ValueError: a field is unknown, missing, or of another type than in the class.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast, and not everywhere
    entries = yaml.load(text, Loader=loader)["families"]  # noqa: S506 - both loaders are safe
    return {name: _family(name, entry) for name, entry in entries.items()}


def _family(name: str, entry: Mapping[str, Any]) -> ModelFamily:
    given = {"name": name, **entry}
    try:
        if "grammar" in entry:
            given["grammar"] = _grammar(**(entry["grammar"] or {}))
        family: ModelFamily = _made(ModelFamily, given)
    except ValueError as error:
        raise ValueError(f"The model family {name!r} is invalid: {error}") from None
    return family


def _grammar(kind: str = "", **given: Any) -> Any:
    if kind not in _KINDS:
        raise ValueError(f"grammar.kind: must be one of {', '.join(_KINDS)}")
    return _made(_KINDS[kind], given, "grammar.")


def _made(kind: type, given: Mapping[str, Any], place: str = "") -> Any:
    """An object of a class, of the fields that are given for it."""
    for name in given.keys() - {field.name for field in dataclasses.fields(kind)}:
        raise ValueError(f"{place}{name}: unknown field of {kind.__name__}")
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.name not in given:
            raise ValueError(f"{place}{field.name}: required field of {kind.__name__}")
    return kind(**{name: _typed(value, _hints(kind)[name], place + name) for name, value in given.items()})


_hints = cache(get_type_hints)  # pydantic's schemas of these classes would take ten times as long


def _typed(value: Any, hint: Any, place: str) -> Any:
    """A value as a field of a type has it: a list as a tuple."""
    if get_origin(hint) is tuple and isinstance(value, list):
        kinds = get_args(hint) if ... not in get_args(hint) else get_args(hint)[:1] * len(value)
        if len(kinds) == len(value):
            return tuple(
                _typed(each, part, f"{place}.{at}") for at, (each, part) in enumerate(zip(value, kinds, strict=True))
            )
    elif get_origin(hint) is Literal and value in get_args(hint):
        return value
    elif ThinkTags in get_args(hint) and isinstance(value, dict):
        return _made(ThinkTags, value, f"{place}.")
    elif isinstance(hint, type) and isinstance(value, hint):
        return value
    raise ValueError(f"{place}: {value!r} must be of the type {(hint.__name__ if isinstance(hint, type) else hint)}")


_TABLE = read_table(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

THINK = _TABLE["think"]
"""Models that reason between ``<think>`` tags and have no call format that is known here."""

PLAIN = _TABLE["plain"]
"""Chat models that were not taught to call tools, and all that no other family claims."""

CLAIMING: tuple[ModelFamily, ...] = tuple(family for family in _TABLE.values() if family not in (THINK, PLAIN))
"""The families that claim models. Of those that do it equally well the first gets a model: particular signs first."""

FAMILIES: Mapping[str, Family] = _TABLE
"""The families of this package, by name."""
