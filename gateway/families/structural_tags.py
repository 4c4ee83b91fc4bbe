"""Structural tags: guides that leave some of the answer free.

Format: xgrammar's structural tags, in the parts that version 0.1.25 has, which TensorRT-LLM 1.2 carries
(https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from gateway.families.call_schema import arguments_schema
from gateway.families.markers import ThinkTags
from gateway.families.tool_plan import Tool, ToolPlan
from gateway.generation import Guide

Format: TypeAlias = dict[str, Any]
"""One piece of a structural tag, as JSON."""


def json_format(schema: Mapping[str, Any]) -> Format:
    """A format: JSON that follows a schema."""
    return {"type": "json_schema", "json_schema": dict(schema)}


def constant(text: str) -> Format:
    """A format: exactly this text."""
    return {"type": "const_string", "value": text}


def free_text() -> Format:
    """A format: any text, up to the end of the tag around it."""
    return {"type": "any_text"}


def nothing() -> Format:
    """A format: no text at all. xgrammar 0.1.25 refuses an empty ``const_string``."""
    return {"type": "grammar", "grammar": 'root ::= ""'}


def tag(begin: str, content: Format, end: str) -> Format:
    """A format: content between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Format) -> Format:
    """A format: these formats one after the other."""
    return {"type": "sequence", "elements": list(elements)} if len(elements) > 1 else elements[0]


def either(*elements: Format) -> Format:
    """A format: one of these formats."""
    return {"type": "or", "elements": list(elements)} if len(elements) > 1 else elements[0]


def arguments_format(tool: Tool) -> Format:
    """A tool's arguments: held to the schema of a strict tool, else to an object."""
    return json_format(arguments_schema(tool) if tool.strict else {"type": "object"})


@dataclass(frozen=True)
class CallFormat:
    """A family's own format of calls, as its models write them.

    Attributes:
        call: a call, with ``NAME`` for the tool's name, ``ARGUMENTS`` for its arguments, and perhaps ``NUMBER`` between
            them, for that of the call as models count them.
        trigger: beginning of the call that stands nowhere in free text; empty: all before the name. A beginning of the
            section instead: there are no calls but inside of one.
        section: texts before the first and after the last of calls that follow each other.
        separator: text between two of them.
        lead: text before calls, or their section, that stand alone, behind reasoning or not.
        once: whether an answer has one call at most, as its models were taught.
        arguments: the format of a tool's arguments, which holds them to the schema of a strict tool, and leaves those
            of another as free as can be; None where it cannot.
        also: other forms of the same calls that are read too, so that none of them passes unguided.
    """

    call: str
    trigger: str = ""
    section: tuple[str, str] = ("", "")
    separator: str = ""
    lead: str = ""
    once: bool = False
    arguments: Callable[[Tool], Format | None] = arguments_format
    also: tuple[CallFormat, ...] = ()

    @cached_property
    def texts(self) -> Sequence[str]:
        """The texts before the name, up to the arguments or the number, between those, and after the arguments."""
        before, _, rest = self.call.partition("NAME")
        between, _, after = rest.partition("ARGUMENTS")
        return before, *between.partition("NUMBER")[::2], after

    def begun_by(self, text: str) -> CallFormat:
        """The format with another text in place of its trigger."""
        begin, end = (part.replace(self.trigger, text) for part in self.section)
        return replace(self, call=self.call.replace(self.trigger, text), trigger=text, section=(begin, end))

    def among_text(self, plan: ToolPlan) -> Format | None:
        """The format of an answer of free text, with or without calls.

        Args:
            plan: names the tools; only strict ones are held to their schema.

        Returns:
            The format; None where the arguments of a strict tool cannot be held to its schema, or others not at all.
        """
        held = {tool.name: self._numbered(self.arguments(tool)) for tool in plan.tools}
        calls = {name: content for name, content in held.items() if content is not None}
        if len(calls) < len(held):
            return None
        forms = (self, *self.also)
        return {
            "type": "triggered_tags",
            "triggers": [form.trigger or form.texts[0] for form in forms],
            "tags": [tagged for form in forms for tagged in form.tags_among(plan, calls)],
            "at_least_one": False,
            "stop_after_first": not self._many(plan),
        }

    def tags_among(self, plan: ToolPlan, calls: Mapping[str, Format]) -> list[Format]:
        """The tags of calls among text, in this form alone; ``calls``: the arguments of each tool."""
        if self.texts[0].startswith(self.trigger):
            return self.each(calls)
        if self._many(plan) and self.section[1]:
            return [self._several(calls)]
        return self.each(calls, *self.section)

    def alone(self, plan: ToolPlan, *, beside: bool = False) -> Format | None:
        """The format of an answer that is calls, one at least.

        Args:
            plan: names the tools. All are held to their schemas, those that are not strict as far as can be.
            beside: whether it is one alternative of an answer. Then it ends by itself: as one call, or by the
                section's end, for version 0.1.25 takes no endless row beside a format that ends.

        Returns:
            The format; None where the arguments of a tool cannot be held.
        """
        held = {tool.name: self._held(tool) for tool in plan.tools}
        calls = {name: content for name, content in held.items() if content is not None}
        if len(calls) < len(held):
            return None
        single = not self._many(plan) or (beside and not self.section[1])
        forms = (self, *self.also) if self.once else (self,)
        ones = [tagged for form in forms for tagged in form.each(calls, *form.section)]
        form = either(*ones) if single else self._several(calls)
        return sequence(constant(self.lead), form) if self.lead else form

    def _held(self, tool: Tool) -> Format | None:
        """Arguments that follow the tool's schema, as far as can be where it is not strict."""
        exact = self.arguments(replace(tool, strict=True))
        return self._numbered(exact if exact is not None or tool.strict else self.arguments(tool))

    def _numbered(self, arguments: Format | None) -> Format | None:
        between = self.texts[2]
        if arguments is None or not between:
            return arguments
        return sequence({"type": "regex", "pattern": "[0-9]{1,4}"}, constant(between), arguments)

    def _many(self, plan: ToolPlan) -> bool:
        return plan.parallel and not self.once

    def each(self, calls: Mapping[str, Format], begin: str = "", end: str = "") -> list[Format]:
        """A call of each tool in this form, each between two texts; ``calls``: the arguments of each tool."""
        before, between, _, after = self.texts
        return [tag(f"{begin}{before}{name}{between}", content, after + end) for name, content in calls.items()]

    def _several(self, calls: Mapping[str, Format]) -> Format:
        """Calls in a row, in a section. What begins each is told by the separator, which must not be empty."""
        (begin, end), (before, between, _, after) = self.section, self.texts
        row: Format = {
            "type": "tags_with_separator",
            "tags": [tag(name + between, content, after) for name, content in calls.items()],
            "separator": self.separator + before,
            "at_least_one": True,
            "stop_after_first": False,
        }
        return tag(begin + before, row, end) if end else sequence(constant(begin + before), row)


def tag_guide(content: Format) -> Guide:
    """The guide of a structural tag."""
    return Guide("structural_tag", json.dumps({"type": "structural_tag", "format": content}, ensure_ascii=False))


def guide_format(guide: Guide) -> Format:
    """The piece of a structural tag that stands for a guide."""
    if guide.kind == "json":
        return json_format({"type": "object"})
    if guide.kind == "json_schema":
        return json_format(json.loads(guide.text))
    if guide.kind == "regex":
        return {"type": "regex", "pattern": guide.text}
    if guide.kind == "ebnf_grammar":
        return {"type": "grammar", "grammar": guide.text}
    form: Format = json.loads(guide.text)["format"]
    return form


def final_format(tags: ThinkTags | None, guide: Guide) -> Format:
    """The piece of a structural tag that stands for the guide of an answer without calls."""
    form = guide_format(guide)
    return sequence(constant(tags.final), form) if tags and tags.final else form


def after_reasoning(tags: ThinkTags | None, prompt: str, content: Format) -> Format:
    """``content`` behind the reasoning between ``tags`` that the model is in, or may begin with; None: there is none."""
    if tags is None or tags.closed_by(prompt):
        return content
    begin = "" if tags.opened_by(prompt) else tags.open
    rest = [constant(tags.between), content] if tags.between else [content]
    reasoned = sequence(tag(begin, free_text(), tags.close), *rest)
    return reasoned if tags.opened_by(prompt) else either(reasoned, content)
