"""The choice of a model's family: by its name in the settings, its configuration or its chat template.

A template is recognised by its signs, and by an example call that it writes: a family that reads this call may be the
model's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple

from gateway.text.families.family import CallArguments, CallStart, Content, Family, Tool, ToolPlan
from gateway.text.families.family_table import CLAIMING, FAMILIES, PLAIN, THINK
from gateway.text.families.model_family import ModelFamily, writes_calls

EXAMPLE = Tool("get_weather", "Gets the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
ARGUMENTS = {"city": "Rome"}
_BARE = re.compile(r"\s*(\{|\[\s*\{|\[?" + EXAMPLE.name + r"\()")
# Forms of tokens that stand for no text; the second bar is DeepSeek's, numbers are Nemotron's.
_CONTROL = re.compile(r"<[|｜][^<>]*>|<[^<>]*[|｜]>|</s>|<eos>|<end_of_turn>|<SPECIAL_[0-9]+>|\[/?[A-Z_]+\]")  # noqa: RUF001
_AS_BARE = (
    json.dumps({"name": EXAMPLE.name, "parameters": ARGUMENTS}),
    f'[{EXAMPLE.name}(city="{ARGUMENTS["city"]}")]',
)

ENTRY_POINTS = "gateway.families"
"""The group in which other packages name families: instances of ``Family``, which may have ``ModelFamily.claims``."""

_REASONS = {
    4: "its config.json and its chat template",
    3: "its config.json",
    2: "its chat template",
    1: "its config.json, whose architecture many families build on",
    0: "the tool call that its chat template writes",
}

_NO_FAMILY = (
    "Set `family` if the model writes calls in a known format; until then only required calls (tool_choice) work, "
    "with guided decoding."
)


class WrittenCall(NamedTuple):
    """The call of ``EXAMPLE`` with ``ARGUMENTS`` as a chat template writes it."""

    prompt: str  # the template's text before it
    text: str  # that for the call alone

    @property
    def bare(self) -> bool:
        """Whether the call is only JSON or Python, which does not identify a family.

        Some templates leave out the marker that they ask the model to write.
        """
        return bool(_BARE.match(self.text))

    @property
    def short(self) -> str:
        """The beginning of the call in one line, for people."""
        text = " ".join(self.text.split())
        return text if len(text) <= 80 else f"{text[:80]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvidence:
    """The facts of a model by which its family is chosen.

    Attributes:
        architectures: ``architectures`` of ``config.json``.
        model_type: ``model_type`` of ``config.json``.
        template: the source of its chat template, empty without one.
        written: the example call as the template writes it; None without calls, or where it is unknown.
        has_token: returns whether a text is one token of the tokenizer; None where that is unknown.
    """

    architectures: Sequence[str] = ()
    model_type: str | None = None
    template: str = ""
    written: WrittenCall | None = None
    has_token: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class FamilyChoice:
    """The family of a model and how certain it is."""

    family: Family
    reason: str  # what it was chosen by
    doubts: Mapping[str, str] = field(default_factory=dict)  # reasons why it may be another, each with what to set


class UnknownFamilyError(LookupError):
    """A setting names an unknown family."""


@cache
def installed() -> Mapping[str, Family]:
    """Load the families of other packages by the names of their entry points, once."""
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}


def named(name: str) -> Family:
    """Find a family by its name.

    Raises:
        UnknownFamilyError: no family has this name.
    """
    others = installed()
    family = others.get(name) or FAMILIES.get(name)
    if family is None:
        known = ", ".join(sorted({*FAMILIES, *others}))
        raise UnknownFamilyError(f"Unknown model family {name!r}; known families: {known}.")
    return family


def choose(evidence: ModelEvidence, name: str | None = None) -> FamilyChoice:
    """Choose the family of a model.

    Its architecture decides where only one family has it; else its template, and then an architecture that many
    build on. The family must read a call as the template writes it: a sign in the template, such as ``<tool_call>``,
    stands in unknown formats as well. Where no sign is known, a family that reads the call is chosen; where no
    family reads the call, only an architecture of a single family counts. Families of other packages go before the
    gateway's own.

    Args:
        evidence: facts of the model.
        name: name of the family in the settings.

    Raises:
        UnknownFamilyError: when no family is named ``name``.
    """
    if name is not None:
        family = named(name)
        return FamilyChoice(family, "the setting `family`", _doubts(family, evidence))
    for architectures, model_type in (((), None), (evidence.architectures, evidence.model_type)):
        for family in installed().values():
            claims: Callable[..., bool] | None = getattr(family, "claims", None)
            if claims is not None and claims(architectures, model_type, evidence.template):
                return FamilyChoice(family, "the package that provides it", _doubts(family, evidence))
    fitting = _fitting(evidence)
    if not fitting:
        family = THINK if _reasons(evidence) else PLAIN
        return FamilyChoice(family, "no other family claims it", _doubts(family, evidence))
    rank, chosen = fitting[0]
    rivals = [other for other_rank, other in fitting[1:] if other_rank == rank and _rivals(chosen, other, evidence)]
    return FamilyChoice(chosen, _REASONS[rank], _doubts(chosen, evidence, rank, rivals))


def _reasons(evidence: ModelEvidence) -> bool:
    return bool(THINK.signs_in(evidence.template))


def _fitting(evidence: ModelEvidence) -> list[tuple[int, ModelFamily]]:
    """The families that a model may be of, with their ranks, the best first."""
    reasoning, written = _reasons(evidence), evidence.written
    ranked = [(each.rank(evidence.architectures, evidence.model_type, evidence.template), each) for each in CLAIMING]
    if written is None or written.bare:
        found = [(rank, family) for rank, family in ranked if rank > 1 or (rank and family.reasons >= reasoning)]
    else:
        found = [(rank, family) for rank, family in ranked if reads(family, written)]
        found = found or [(rank, family) for rank, family in ranked if rank > 2]
    # Stable: of those that fit equally the first of the table; by the call alone, first those that reason alike.
    return sorted(found, key=lambda each: (-each[0], each[0] < 2 and each[1].reasons != reasoning))


def _rivals(chosen: ModelFamily, other: ModelFamily, evidence: ModelEvidence) -> bool:
    """Return whether another family of the same rank fits as well, by signs that the chosen family lacks."""
    if (chosen.grammar, chosen.tags) == (other.grammar, other.tags):
        return False
    if evidence.written is not None and chosen.reasons != other.reasons:
        return False
    own, others = ([set(group) for group in each.signs_in(evidence.template)] for each in (chosen, other))
    return not any(group <= particular for group in others for particular in own)


def _doubts(
    family: Family, evidence: ModelEvidence, rank: int | None = None, rivals: Sequence[ModelFamily] = ()
) -> Mapping[str, str]:
    """List what speaks against a choice, with what to set.

    ``rank`` and ``rivals`` are given for a choice among the gateway's own families.
    """
    other = "Set `family` if the model belongs to another family."
    doubts = _unread(family, evidence)
    if rivals:
        names = " and ".join(rival.name for rival in rivals)
        doubts[f"its chat template also has the markers of {names}"] = other
    types = {*evidence.architectures, evidence.model_type}
    for claimant in CLAIMING:
        if claimant is not family and rank is not None and rank < 3 and not types.isdisjoint(claimant.model_types):
            doubts[f"only its config.json belongs to {claimant.name}, not its chat template"] = other
    if rank == 1 and (evidence.written is None or evidence.written.bare):
        doubts[
            (
                "only its architecture, which many families share, indicates it: its chat template has no markers of "
                "the family"
            )
        ] = other
    lacking = control_tokens(family, evidence.written)
    if evidence.has_token is not None and lacking and not any(map(evidence.has_token, lacking)):
        doubts[f"its tokenizer lacks the token {', '.join(lacking)}, which tool calls of {family.name} need"] = other
    return doubts


def _unread(family: Family, evidence: ModelEvidence) -> dict[str, str]:
    """The doubt where a family does not read the calls that a chat template writes or asks for, and what to set."""
    written, doubt = evidence.written, "its chat template supports tools and its model family is unknown"
    if not writes_calls(family):
        if written is not None:
            doubt = f"its chat template writes tool calls as {written.short}, which no known model family reads"
        return {doubt: _NO_FAMILY} if written or "tools" in evidence.template else {}
    if written is None or written.bare or reads(family, written):
        return {}
    readers = " or ".join(each.name for each in (*installed().values(), *CLAIMING) if reads(each, written))
    cure = (
        f"Set `family` to {readers}, which reads them."
        if readers
        else "Set `template` to a chat template that writes tool calls in the format of the family."
    )
    return {f"its chat template writes tool calls as {written.short}, which {family.name} does not read": cure}


def reads(family: Family, written: WrittenCall) -> bool:
    """Tell whether a family's parser returns exactly the written call, without content.

    Control tokens at the end of the text are removed unless the family needs them: engines do not return them.
    """
    plan = ToolPlan(tools=(EXAMPLE,), choice="auto")
    preparation = family.prepare(plan, written.prompt)
    parser = family.parser(plan, preparation, written.prompt)
    text = _without_end(written.text, preparation.special)
    events = [*parser.feed(text), *parser.finish(cut=False)]
    names = [event.name for event in events if isinstance(event, CallStart)]
    arguments = "".join(event.text for event in events if isinstance(event, CallArguments) and event.index == 0)
    rest = any(isinstance(event, Content) and not event.text.isspace() for event in events)
    return names == [EXAMPLE.name] and not rest and json.loads(arguments) == ARGUMENTS


def _without_end(text: str, special: Collection[str]) -> str:
    ends = [found for found in _CONTROL.finditer(text.rstrip()) if found.end() == len(text.rstrip())]
    if not ends or ends[0][0] in special:
        return text
    return _without_end(text[: ends[0].start()], special)


def control_tokens(family: Family, written: WrittenCall | None) -> tuple[str, ...]:
    """The texts of a family's calls that must be single tokens, by their form; each call begins with one.

    None for a family that reads calls without them, except where the template writes them.
    """
    special = family.prepare(ToolPlan(tools=(EXAMPLE,), choice="auto")).special
    found = sorted(text for text in special if _CONTROL.fullmatch(text))
    if written is not None and not written.bare:
        return tuple(text for text in found if text in written.text)
    return () if any(reads(family, WrittenCall("", text)) for text in _AS_BARE) else tuple(found)
