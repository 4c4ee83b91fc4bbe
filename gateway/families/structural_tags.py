"""Structural tags: guides that leave some of the answer free.

Format: xgrammar's structural tags, in the parts that version 0.1.25 has, which TensorRT-LLM 1.2 carries
(https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A family's own format of calls: the texts before, between and after a tool's name and its arguments.

    Attributes:
        before: text before the name.
        between: text between name and arguments.
        after: text after the arguments.
        trigger: beginning of ``before`` that stands nowhere in free text; empty: all of it.
        section: texts before and after a demanded call.
        once: whether an answer has one call at most, as its models were taught.
        arguments: the format of a tool's arguments; None where they cannot be held to its schema.
    """

    before: str
    between: str
    after: str
    trigger: str = ""
    section: tuple[str, str] = ("", "")
    once: bool = False
    arguments: Callable[[Tool], Format | None] = arguments_format

    def answer(self, plan: ToolPlan, *, demanded: bool) -> Format | None:
        """The format of an answer with calls among free text.

        Args:
            plan: names the tools; only strict ones are held to their schema.
            demanded: whether the answer is one call instead.

        Returns:
            The format; None where the arguments of a tool cannot be held to its schema.
        """
        tags = self.tags(plan.tools, demanded=demanded)
        if len(tags) < len(plan.tools):
            return None
        if demanded:  # xgrammar 0.1.25 takes no row of tags as one alternative beside a format that ends by itself
            return either(*tags)
        return {
            "type": "triggered_tags",
            "triggers": [self.trigger or self.before],
            "tags": tags,
            "at_least_one": False,
            "stop_after_first": self.once or not plan.parallel,
        }

    def tags(self, tools: Sequence[Tool], *, demanded: bool) -> list[Format]:
        """The formats of one call of each tool, without tools whose arguments cannot be held to their schema."""
        begin, end = self.section if demanded else ("", "")
        formats = [(tool.name, self.arguments(tool)) for tool in tools]
        return [
            tag(f"{begin}{self.before}{name}{self.between}", content, self.after + end)
            for name, content in formats
            if content is not None
        ]


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


def after_reasoning(tags: ThinkTags, prompt: str, content: Format) -> Format:
    """``content`` behind the reasoning that the model is in, or may begin with.

    Args:
        tags: around the reasoning.
        prompt: the rendered prompt.
        content: format of the answer.
    """
    if tags.closed_by(prompt):
        return content
    begin = "" if tags.opened_by(prompt) else tags.open
    rest = [constant(tags.between), content] if tags.between else [content]
    reasoned = sequence(tag(begin, free_text(), tags.close), *rest)
    return reasoned if tags.opened_by(prompt) else either(reasoned, content)
