"""A family as an entry of the table: its signs, its grammar of calls, its think tags, and its guides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gateway.text.families.call_schema import calls_guide, object_schema
from gateway.text.families.family import Family, Parser, Preparation, ReasoningEnd, ToolPlan
from gateway.text.families.family_parser import NO_CALLS, FamilyParser, Grammar
from gateway.text.families.json_calls import GuidedCalls
from gateway.text.families.markers import Markers, ThinkTags
from gateway.text.families.structural_tags import CallFormat, Format, after_reasoning, either, final_format, tag_guide
from gateway.text.guides.guide import Guide


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """A family whose reasoning, if any, stands between think tags before the answer.

    Attributes:
        name: name for settings and logs.
        models: its models in short text for people, such as "Granite 3.0 to 3.3".
        sources: addresses of model cards, templates or documentation that describe the format.
        grammar: the grammar of its calls, which may be none.
        tags: tags around its reasoning; None without reasoning.
        stop: texts of special tokens that end the turn, in addition to the model's end ids.
        visible: texts of special tokens that its markers are made of, where the markers are not tokens themselves.
        signs: groups of texts; a template of this family has all of one group. By default the marker of a call.
        model_types: ``model_type`` or architectures of ``config.json`` that no other family has.
        older_types: types of an earlier family, which count together with a sign.
        shared_types: types that many families share; they count where the template takes tools and has no sign.
    """

    name: str
    models: str = ""
    sources: tuple[str, ...] = ()
    grammar: Grammar = NO_CALLS
    tags: ThinkTags | None = None
    stop: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    signs: tuple[tuple[str, ...], ...] = ()
    model_types: tuple[str, ...] = ()
    older_types: tuple[str, ...] = ()
    shared_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take over from the grammar what begins calls."""
        begins = tuple(self.grammar.begins)
        if begins and not self.signs:
            object.__setattr__(self, "signs", (begins,))
        if self.tags and self.tags.until_calls:
            object.__setattr__(self, "tags", replace(self.tags, instead=(*begins, *self.tags.instead)))

    @cached_property
    def markers(self) -> Markers:
        """The markers of calls and the think tags, none of which reaches the client of an answer with tools."""
        texts = (*self.grammar.markers, *(self.tags.markers.texts if self.tags else ()))
        # A tag that is made of markers is found by them.
        return Markers(*(text for text in texts if not any(other in text and other != text for other in texts)))

    @cached_property
    def _call_format(self) -> CallFormat | None:
        return self.grammar.call_format

    @property
    def reasons(self) -> bool:
        """Whether the family's models write reasoning separately from the answer."""
        return self.tags is not None

    def claims(self, architectures: Sequence[str], model_type: str | None, template_source: str) -> bool:
        """Tell whether a model is of this family; see ``rank``."""
        return self.rank(architectures, model_type, template_source) > 0

    def rank(self, architectures: Sequence[str], model_type: str | None, template_source: str) -> int:
        """Return how certainly a model is of this family, 0 for no; see ``family_choice.ModelEvidence``."""
        types = {*architectures, model_type}
        if self.signs_in(template_source):
            return 2 if types.isdisjoint((*self.model_types, *self.older_types)) else 4
        if not types.isdisjoint(self.model_types):
            return 3
        return int("tools" in template_source and not types.isdisjoint(self.shared_types))

    def signs_in(self, template_source: str) -> Sequence[Sequence[str]]:
        """The groups of signs whose texts are all in a chat template."""
        return [group for group in self.signs if all(text in template_source for text in group)]

    def prepare(self, plan: ToolPlan, prompt: str = "") -> Preparation:
        """Prepare the generation of an answer; see ``Family.prepare``."""
        guide, guided = self._guide(plan, prompt)
        special = self.tags.markers.texts if self.tags else ()
        if plan.calls or self.grammar.whole:
            special = (*self.markers.texts, *self.visible)
        return Preparation(guide=guide, special=frozenset(special), stop=self.stop, guided=guided)

    def thought_end(self, plan: ToolPlan) -> ReasoningEnd | None:
        """A way to end the reasoning of an answer early; None without one."""
        if self.tags is None:
            return None
        text = self.tags.close + self.tags.between
        guide, _ = self._guide(plan, self.tags.open + text)
        free = not plan.calls and guide in (None, plan.response)
        return ReasoningEnd(text + self.tags.final if free else text, guide)

    def parser(self, plan: ToolPlan, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """Make a parser for one answer; see ``Family.parser``."""
        guide = preparation.guide
        tagged = guide is None or guide.kind == "structural_tag"
        # A guide from the first token on leaves no room for reasoning, even where the prompt has opened it; only a
        # structural tag may.
        tags = self.tags if tagged else None
        if guide is not None and guide == plan.response:
            prompt = ""
        grammar, markers = self.grammar, self.markers
        if plan.calls and preparation.guided and self._native_calls(plan) is None:
            grammar = GuidedCalls()
        elif not (plan.calls or self.grammar.whole) or not tagged:
            grammar, markers = NO_CALLS, tags.markers if tags else Markers()
        guided = preparation.guided
        return FamilyParser(
            plan=plan, grammar=grammar, prompt=prompt, markers=markers, tags=tags, guided=guided, eager=eager
        )

    def _guide(self, plan: ToolPlan, prompt: str) -> tuple[Guide | None, bool]:
        """The guide, and whether it guarantees every call. It is of the answer behind the reasoning where it can be."""
        tags = self.tags if self.grammar.starts_behind(prompt) else None
        native = self._native_calls(plan)
        if native is not None:
            beside = plan.response if plan.choice == "auto" else None
            content = native if beside is None else either(native, final_format(tags, beside))
            return tag_guide(after_reasoning(tags, prompt, content)), True
        demanded = plan.calls and plan.choice == "required"
        structured = object_schema(plan.response) if plan.response and plan.calls and not demanded else None
        by_schema = not {"json_schema", "structural_tag"}.isdisjoint(plan.guide_types)
        guided = by_schema and (demanded or structured is not None)
        guide = None if demanded else plan.response
        if guided:
            guide = calls_guide(plan.tools, parallel=plan.parallel, response=structured)
        if guide is None or guide.kind == "structural_tag" or "structural_tag" not in plan.guide_types:
            return guide, guided
        if tags is None and guide.kind in plan.guide_types:
            return guide, guided
        return tag_guide(after_reasoning(tags, prompt, final_format(tags, guide))), guided

    def _native_calls(self, plan: ToolPlan) -> Format | None:
        """Calls guided in the family's own format; None: they are not guided, or as an array of JSON."""
        form, response = self._call_format, plan.response
        if form is None or not plan.calls or "structural_tag" not in plan.guide_types:
            return None
        if plan.choice == "required":
            return form.alone(plan)
        if response is None:
            return form.among_text(plan) if any(tool.strict for tool in plan.tools) else None
        return None if response.kind == "structural_tag" else form.alone(plan, beside=True)


def ends_thoughts(family: Family) -> bool:
    """Tell whether the reasoning of a family's models can be ended early."""
    return isinstance(family, ModelFamily) and family.reasons


def writes_calls(family: Family) -> bool:
    """Tell whether a family's models write calls without a guide, in a known format."""
    return not isinstance(family, ModelFamily) or family.grammar is not NO_CALLS
