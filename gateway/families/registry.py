"""The families by name, and which one a model belongs to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol, runtime_checkable

from gateway.families.base import BaseFamily
from gateway.families.deepseek import DeepseekFamily, NewerDeepseekFamily
from gateway.families.events import CallArguments, CallStart
from gateway.families.family import Family, Tool, Turn
from gateway.families.glm import GlmFamily
from gateway.families.gpt_oss import HarmonyFamily
from gateway.families.granite import GraniteFamily, NewerGraniteFamily
from gateway.families.hermes import HermesFamily, QwenFamily
from gateway.families.kimi import KimiFamily
from gateway.families.llama3 import Llama3Family
from gateway.families.mistral import MistralFamily, NewerMistralFamily
from gateway.families.phi4 import Phi4Family
from gateway.families.plain import PlainFamily, ThinkFamily
from gateway.families.pythonic import Lfm2Family, PythonicFamily
from gateway.families.qwen3_coder import Qwen3CoderFamily, Qwen35Family

ENTRY_POINTS = "gateway.families"
"""The group in which other packages name families: instances of ``Family``, which may have ``claims``."""


@runtime_checkable
class Claiming(Protocol):
    """A family that knows its models."""

    def claims(self, architectures: Sequence[str], model_type: str | None, template_source: str) -> bool:
        """Whether a model is of this family; arguments as of ``choose``."""
        ...


class WrittenCall(NamedTuple):
    """A call to ``EXAMPLE`` with ``ARGUMENTS``, as a chat template writes it.

    Attributes:
        prompt: what the template writes before it.
        text: what it writes for the call, and for nothing else.
    """

    prompt: str
    text: str


EXAMPLE = Tool("get_weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
ARGUMENTS = {"city": "Rome"}
_BARE = re.compile(r"\s*(\{|\[\s*\{|\[?" + EXAMPLE.name + r"\()")


class UnknownFamilyError(LookupError):
    """A setting names a family that there is not."""


PLAIN = PlainFamily()
THINK = ThinkFamily()

# Of those that claim a model equally well the first gets it: those with the more particular signs come first.
_BUILT_IN: tuple[BaseFamily, ...] = (
    NewerMistralFamily(),
    MistralFamily(),
    KimiFamily(),
    NewerDeepseekFamily(),
    DeepseekFamily(),
    HarmonyFamily(),
    NewerGraniteFamily(),
    GraniteFamily(),
    Phi4Family(),
    GlmFamily(),
    Qwen35Family(),
    Qwen3CoderFamily(),
    QwenFamily(),
    HermesFamily(),
    PythonicFamily(),
    Lfm2Family(),
    Llama3Family(),
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in (*_BUILT_IN, THINK, PLAIN)}
"""The families of this package, by name."""


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
    build on. What the template writes for a call must be a call to the family: a sign in the template, such as
    ``<tool_call>``, stands in formats that nobody here reads as well. A family that another package brings goes before
    ours.

    Args:
        architectures: of the model's ``config.json``.
        model_type: of ``config.json``.
        template_source: its chat template, empty when it has none.
        override: the name of the family to take, from the settings.
        written: what the template writes for a call to ``EXAMPLE``; None: it shows none, or that is not known.

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
    ranks = [(family.rank(architectures, model_type, template_source), family) for family in _BUILT_IN]
    ranked = sorted((pair for pair in ranks if pair[0]), key=lambda pair: -pair[0])  # stable: of two the first
    reasoning = THINK.claims((), None, template_source)
    for rank, family in ranked:
        if (family.reasons or not reasoning or rank > 1) and (written is None or reads(family, written)):
            return family
    return THINK if reasoning else PLAIN


def reads(family: Family, written: WrittenCall) -> bool:
    """Whether a family reads a written call as the call that it is, or that tells nothing.

    Bare JSON or Python tells nothing: some templates leave out the marker that they ask the model to write.
    """
    if _BARE.match(written.text):
        return True
    turn = Turn(tools=(EXAMPLE,), choice="auto")
    parser = family.parser(turn, family.prepare(turn, written.prompt), written.prompt)
    events = [*parser.feed(written.text), *parser.finish(cut=False)]
    names = [event.name for event in events if isinstance(event, CallStart)]
    text = "".join(event.text for event in events if isinstance(event, CallArguments) and event.index == 0)
    return names == [EXAMPLE.name] and json.loads(text) == ARGUMENTS
