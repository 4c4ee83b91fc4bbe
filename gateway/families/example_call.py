"""An example of a call, as a chat template writes it: the family that reads it as that call may be the model's."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import NamedTuple

from gateway.families.family import CallArguments, CallStart, Content, Family, Tool, ToolPlan

EXAMPLE = Tool("get_weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
ARGUMENTS = {"city": "Rome"}
_BARE = re.compile(r"\s*(\{|\[\s*\{|\[?" + EXAMPLE.name + r"\()")
# Forms of tokens that stand for no text; the second bar is DeepSeek's, numbers are Nemotron's.
_CONTROL = re.compile(r"<[|｜][^<>]*>|<[^<>]*[|｜]>|</s>|<eos>|<end_of_turn>|<SPECIAL_[0-9]+>|\[/?[A-Z_]+\]")  # noqa: RUF001
_AS_BARE = (
    json.dumps({"name": EXAMPLE.name, "parameters": ARGUMENTS}),
    f'[{EXAMPLE.name}(city="{ARGUMENTS["city"]}")]',
)


class WrittenCall(NamedTuple):
    """A call to ``EXAMPLE`` with ``ARGUMENTS``, as a chat template writes it.

    Attributes:
        prompt: the template's text before it.
        text: the template's text for the call alone.
    """

    prompt: str
    text: str

    @property
    def bare(self) -> bool:
        """Whether it is JSON or Python alone, which tells nothing.

        Some templates leave out the marker that they ask the model to write.
        """
        return bool(_BARE.match(self.text))

    @property
    def short(self) -> str:
        """Its beginning in one line, for people."""
        text = " ".join(self.text.split())
        return text if len(text) <= 80 else f"{text[:80]}..."


def reads(family: Family, written: WrittenCall) -> bool:
    """Whether a family reads a written call as the call that it is, and nothing of it as content.

    Control tokens at its end that the family does not ask for are the end of the turn, which engines leave out.
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
    """Those texts of a family's calls that must be tokens of their own, by their form: one of them begins each call.

    None for a family that reads calls without them, except where the template writes them.
    """
    special = family.prepare(ToolPlan(tools=(EXAMPLE,), choice="auto")).special
    found = sorted(text for text in special if _CONTROL.fullmatch(text))
    if written is not None and not written.bare:
        return tuple(text for text in found if text in written.text)
    return () if any(reads(family, WrittenCall("", text)) for text in _AS_BARE) else tuple(found)
