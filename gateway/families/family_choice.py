"""The choice of a model's family: by its name in the settings, its configuration, its chat template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol, runtime_checkable

from gateway.families.family import Family
from gateway.families.family_table import CLAIMING, FAMILIES, PLAIN, THINK
from gateway.families.parser_events import CallArguments, CallStart
from gateway.families.tool_plan import Tool, ToolPlan

ENTRY_POINTS = "gateway.families"
"""The group in which other packages name families: instances of ``Family``, which may have ``claims``."""


@runtime_checkable
class Claiming(Protocol):
    """A family that recognizes its models."""

    def claims(self, architectures: Sequence[str], model_type: str | None, template_source: str) -> bool:
        """Whether a model is of this family; arguments as of ``choose``."""
        ...


class WrittenCall(NamedTuple):
    """A call to ``EXAMPLE`` with ``ARGUMENTS``, as a chat template writes it.

    Attributes:
        prompt: the template's text before it.
        text: the template's text for the call alone.
    """

    prompt: str
    text: str


EXAMPLE = Tool("get_weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
ARGUMENTS = {"city": "Rome"}
_BARE = re.compile(r"\s*(\{|\[\s*\{|\[?" + EXAMPLE.name + r"\()")


class UnknownFamilyError(LookupError):
    """A setting names an unknown family."""


@cache
def installed() -> Mapping[str, Family]:
    """Families that other packages bring, by the name of their entry point. Loaded once."""
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}


def choose(
    architectures: Sequence[str],
    model_type: str | None,
    template_source: str,
    override: str | None = None,
    written: WrittenCall | None = None,
) -> Family:
    """The family of a model.

    Its architecture says it best, where only one family has it; else its template, and then an architecture that many
    build on. The family must read a call as the template writes it: a sign in the template, such as ``<tool_call>``,
    stands in unknown formats as well. A family that another package brings goes before ours.

    Args:
        architectures: of the model's ``config.json``.
        model_type: of ``config.json``.
        template_source: its chat template, empty when it has none.
        override: the name of the family to take, from the settings.
        written: a call to ``EXAMPLE`` as the template writes it; None: it shows none, or that is not known.

    Raises:
        UnknownFamilyError: when there is no family of the name ``override``.
    """
    others = installed()
    if override is not None:
        family = others.get(override) or FAMILIES.get(override)
        if family is None:
            known = ", ".join(sorted({*FAMILIES, *others}))
            raise UnknownFamilyError(f"There is no model family {override!r}; there are: {known}.")
        return family
    for evidence in (((), None), (architectures, model_type)):
        for family in others.values():
            if isinstance(family, Claiming) and family.claims(*evidence, template_source):
                return family
    ranks = [(family.rank(architectures, model_type, template_source), family) for family in CLAIMING]
    ranked = sorted((pair for pair in ranks if pair[0]), key=lambda pair: -pair[0])  # stable: of two the first
    reasoning = THINK.claims((), None, template_source)
    for rank, family in ranked:
        if (family.reasons or not reasoning or rank > 1) and (written is None or reads(family, written)):
            return family
    return THINK if reasoning else PLAIN


def reads(family: Family, written: WrittenCall) -> bool:
    """Whether a family reads a written call as the call that it is.

    True also for bare JSON or Python, which tells nothing: some templates leave out the marker that they ask the model
    to write.
    """
    if _BARE.match(written.text):
        return True
    plan = ToolPlan(tools=(EXAMPLE,), choice="auto")
    parser = family.parser(plan, family.prepare(plan, written.prompt), written.prompt)
    events = [*parser.feed(written.text), *parser.finish(cut=False)]
    names = [event.name for event in events if isinstance(event, CallStart)]
    text = "".join(event.text for event in events if isinstance(event, CallArguments) and event.index == 0)
    return names == [EXAMPLE.name] and json.loads(text) == ARGUMENTS
