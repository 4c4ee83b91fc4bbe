"""Structural tags: guides that leave parts of the answer free.

Format: xgrammar's structural tags, in the parts that version 0.1.25 has, which TensorRT-LLM 1.2 carries
(https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from gateway.text.families.call_schema import arguments_schema
from gateway.text.families.family import Tool, ToolPlan
from gateway.text.families.markers import ThinkTags
from gateway.text.guides.guide import Guide

Format: TypeAlias = dict[str, Any]
"""One piece of a structural tag, as JSON."""

FREE_TEXT: Format = {"type": "any_text"}
"""Any text, up to the end of the tag around it."""

NOTHING: Format = {"type": "grammar", "grammar": 'root ::= ""'}
"""Empty text. xgrammar 0.1.25 rejects an empty ``const_string``."""

_NUMBER: Format = {"type": "regex", "pattern": "[0-9]{1,4}"}


def json_format(schema: Mapping[str, Any]) -> Format:
    """Make a format: JSON that follows a schema."""
    return {"type": "json_schema", "json_schema": dict(schema)}


def constant(text: str) -> Format:
    """Make a format: exactly this text."""
    return {"type": "const_string", "value": text}


def tag(begin: str, content: Format, end: str) -> Format:
    """Make a format: content between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Format | str) -> Format:
    """Make a format: formats and texts, one after the other."""
    pieces = [constant(each) if isinstance(each, str) else each for each in elements if each]
    return {"type": "sequence", "elements": pieces} if len(pieces) > 1 else (pieces or [NOTHING])[0]


def either(*elements: Format) -> Format:
    """Make a format: one of these formats."""
    return {"type": "or", "elements": list(elements)} if len(elements) > 1 else elements[0]


def arguments_format(tool: Tool) -> Format:
    """Make the format of a tool's arguments: the schema of a strict tool, else any object."""
    return json_format(arguments_schema(tool) if tool.strict else {"type": "object"})


@dataclass(frozen=True)
class CallFormat:
    """A family's format of calls, as its models write them.

    Attributes:
        call: a call, with ``NAME`` for the tool's name, ``ARGUMENTS`` for its arguments, and perhaps ``NUMBER`` between
            them, for the number of the call.
        trigger: beginning of a call that never is free text; empty for all text before the name. With the beginning of
            the section, calls stand only inside of a section.
        section: texts before the first and after the last of calls that follow each other.
        gap: text between two of them.
        lead: text before calls, or their section, that stand alone, behind reasoning or not.
        once: whether a guide allows only one call, as the models were trained.
        arguments: makes the format of a tool's arguments: the schema of a strict tool, as few limits as possible for
            others; None where it cannot.
        also: other forms of the same calls, which a guide has too, so that none of them passes unguided.
    """

    call: str
    trigger: str = ""
    section: tuple[str, str] = ("", "")
    gap: str = ""
    lead: str = ""
    once: bool = False
    arguments: Callable[[Tool], Format | None] = arguments_format
    also: tuple[CallFormat, ...] = ()

    @cached_property
    def texts(self) -> Sequence[str]:
        """The texts before the name, up to the arguments or the number, between both, and after the arguments."""
        before, _, rest = self.call.partition("NAME")
        between, _, after = rest.partition("ARGUMENTS")
        return before, *between.partition("NUMBER")[::2], after

    def begun_by(self, text: str) -> CallFormat:
        """Copy the format with another trigger."""
        begin, end = (part.replace(self.trigger, text) for part in self.section)
        return replace(self, call=self.call.replace(self.trigger, text), trigger=text, section=(begin, end))

    def among_text(self, plan: ToolPlan) -> Format | None:
        """Make the format of free text with or without calls; only strict tools are constrained by their schema.

        None where the arguments of a strict tool cannot be constrained by the schema, or others not at all.
        """
        calls = self._held(plan.tools, exact=False)
        if calls is None:
            return None
        forms, many = (self, *self.also), plan.parallel and not self.once
        return {
            "type": "triggered_tags",
            "triggers": [form.trigger or form.texts[0] for form in forms],
            "tags": [tagged for form in forms for tagged in form.tags_among(calls, many=many)],
            "at_least_one": False,
            "stop_after_first": not many,
        }

    def tags_among(self, calls: Mapping[str, Format], *, many: bool) -> list[Format]:
        """Make the tags of calls among text, in this form only; ``calls``: the arguments of each tool."""
        if self.texts[0].startswith(self.trigger):
            return self.each(calls, "", "")
        return [self._several(calls)] if many and self.section[1] else self.each(calls, *self.section)

    def alone(self, plan: ToolPlan, *, beside: bool = False) -> Format | None:
        """Make the format of an answer that is one or more calls; None where arguments cannot be constrained.

        Args:
            plan: plan with the tools. Schemas constrain strict tools exactly, and other tools as far as possible.
            beside: whether the format is one of several alternatives. Then it is one call or a closed section of calls,
                because xgrammar 0.1.25 rejects an unbounded list of calls as an alternative to a bounded format.
        """
        calls = self._held(plan.tools, exact=True)
        if calls is None:
            return None
        single = self.once or not plan.parallel or (beside and not self.section[1])
        forms = (self, *self.also) if self.once else (self,)
        ones = [tagged for form in forms for tagged in form.each(calls, *form.section)]
        form = either(*ones) if single else self._several(calls)
        return sequence(self.lead, form)

    def _held(self, tools: Sequence[Tool], *, exact: bool) -> Mapping[str, Format] | None:
        """The arguments of each tool, with the number before them; None where those of one cannot be held.

        ``exact``: whether those that are not strict follow their schemas, too, as far as can be.
        """
        number: list[Format | str] = [_NUMBER, self.texts[2]] if self.texts[2] else []
        held = {}
        for tool in tools:
            arguments = self.arguments(replace(tool, strict=exact or tool.strict))
            if arguments is None and not tool.strict:
                arguments = self.arguments(tool)
            if arguments is None:
                return None
            held[tool.name] = sequence(*number, arguments)
        return held

    def each(self, calls: Mapping[str, Format], begin: str, end: str) -> list[Format]:
        """Make a call of each tool in this form, each between two texts; ``calls``: the arguments of each tool."""
        before, between, _, after = self.texts
        return [tag(f"{begin}{before}{name}{between}", content, after + end) for name, content in calls.items()]

    def _several(self, calls: Mapping[str, Format]) -> Format:
        """Return the format of calls in a row, in a section.

        The gap, which must not be empty, marks where each call begins.
        """
        (begin, end), (before, between, _, after) = self.section, self.texts
        row: Format = {
            "type": "tags_with_separator",
            "tags": [tag(name + between, content, after) for name, content in calls.items()],
            "separator": self.gap + before,
            "at_least_one": True,
            "stop_after_first": False,
        }
        return tag(begin + before, row, end) if end else sequence(begin + before, row)


def tag_guide(content: Format) -> Guide:
    """Make the guide of a structural tag."""
    return Guide("structural_tag", json.dumps({"type": "structural_tag", "format": content}, ensure_ascii=False))


def guide_format(guide: Guide) -> Format:
    """Make the part of a structural tag for a guide."""
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
    """Make the part of a structural tag for the guide of an answer without calls."""
    return sequence(tags.final if tags else "", guide_format(guide))


def after_reasoning(tags: ThinkTags | None, prompt: str, content: Format) -> Format:
    """Put ``content`` behind the reasoning that the model is in, or may begin with, by ``tags``."""
    if tags is None or tags.closed_by(prompt):
        return content
    opened = tags.opened_by(prompt)
    reasoned = sequence(tag("" if opened else tags.open, FREE_TEXT, tags.close), tags.between, content)
    return reasoned if opened else either(reasoned, content)
