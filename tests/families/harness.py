"""Feeds recorded outputs to the families' parsers in every way, and says what they said.

``recorded/<family>.yaml`` holds the tools of its cases, and cases: what the model wrote, and the events that it means.
Where the form is published, the family's entry of the table says (``sources``), and the file where it has more of them.
Keys of a case:

    name      of the case
    output    what the model wrote
    events    what it means: {content: ...}, {reasoning: ...}, {call: NAME, arguments: TEXT, id: ID or absent}
    eager     the events of an eager parser, where they differ (broken calls)
    prompt    the end of the prompt, where it matters
    turn      fields of ToolPlan that differ from: choice auto with the file's tools (tools: names of those given)
    cut       true where the token limit ended the answer
    guided    true where the guide guarantees calls (guide_types are then all)
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import tokenizers
import yaml
from tokenizers import AddedToken, models, pre_tokenizers, trainers

from gateway.text.families import (
    CallArguments,
    CallStart,
    Content,
    Event,
    Family,
    Parser,
    Preparation,
    Reasoning,
    Tool,
    ToolPlan,
)
from gateway.text.families.family_table import FAMILIES
from gateway.text.families.parser_events import merge
from tests.rings import one_in

RECORDED = Path(__file__).parent / "recorded"
# libyaml's, which reads them ten times as fast: each worker does when it collects.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
GUIDES = frozenset({"json", "json_schema", "regex", "ebnf_grammar", "structural_tag"})


@dataclass(frozen=True)
class Case:
    """One recorded output."""

    family: Family
    name: str
    output: str
    events: list[Event]
    eager_events: list[Event]
    turn: ToolPlan
    prompt: str = ""
    cut: bool = False
    markers: tuple[str, ...] = field(default=())

    @property
    def guided(self) -> bool:
        """Whether the guide guarantees every call, so that parsers are always eager."""
        return self._preparation.guided

    def parser(self, *, eager: bool) -> Parser:
        """A new parser for this output."""
        return self.family.parser(self.turn, self._preparation, self.prompt, eager=eager)

    @functools.cached_property
    def _preparation(self) -> Preparation:
        # The choices of a request share one, too.
        return self.family.prepare(self.turn, self.prompt)

    def parse(self, chunks: Iterable[str], *, eager: bool) -> list[Event]:
        """What a new parser says of the chunks, merged."""
        return parse(self.parser(eager=eager), chunks, cut=self.cut)


def parse(parser: Parser, chunks: Iterable[str], *, cut: bool = False) -> list[Event]:
    """What a parser says of the chunks, merged."""
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return merge([*events, *parser.finish(cut=cut)])


def cut_at(text: str, cuts: Iterable[int]) -> list[str]:
    """The text in chunks that end at ``cuts``."""
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def tool(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> Tool:
    """A tool."""
    return Tool(name=name, parameters=parameters, **more)


@functools.cache
def families_recorded() -> tuple[str, ...]:
    """The families with recorded outputs."""
    return tuple(sorted(path.stem for path in RECORDED.glob("*.yaml")))


@functools.cache
def cases(family: str) -> tuple[Case, ...]:
    """The recorded outputs of a family."""
    data = yaml.load((RECORDED / f"{family}.yaml").read_text(encoding="utf-8"), Loader=LOADER)
    tools = {name: tool(name, **(fields or {})) for name, fields in data["tools"].items()}
    return tuple(_case(FAMILIES[family], tools, case) for case in data["cases"])


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """All recorded outputs."""
    return tuple(case for family in families_recorded() for case in cases(family))


def case_ids(chosen: Sequence[Case]) -> list[str]:
    """Names of cases for pytest."""
    return [f"{case.family.name}-{case.name}" for case in chosen]


def some(chosen: Sequence[Case]) -> list[Any]:
    """Cases as parameters, of which a short run takes a quarter, and of each family one at least."""
    return one_in(4, chosen, case_ids(chosen), lambda case: str(case.family.name))


def _case(family: Family, tools: dict[str, Tool], data: dict[str, Any]) -> Case:
    known = {"name", "output", "events", "eager", "prompt", "turn", "cut", "guided"}
    assert set(data) <= known, f"{data['name']}: {set(data) - known}"
    fields = dict(data.get("turn", {}))
    names = fields.pop("tools", list(tools))
    if data.get("guided"):
        fields["guide_types"] = GUIDES
    turn = ToolPlan(**{"choice": "auto", **fields, "tools": tuple(tools[name] for name in names)})
    events = _events(data["events"])
    preparation = family.prepare(turn, data.get("prompt", ""))
    return Case(
        family=family,
        name=data["name"],
        output=data["output"],
        events=events,
        eager_events=_events(data["eager"]) if "eager" in data else events,
        turn=turn,
        prompt=data.get("prompt", ""),
        cut=data.get("cut", False),
        markers=tuple(preparation.special),
    )


def _events(data: list[dict[str, Any]]) -> list[Event]:
    events: list[Event] = []
    index = 0
    for entry in data:
        if "content" in entry:
            events.append(Content(entry["content"]))
        elif "reasoning" in entry:
            events.append(Reasoning(entry["reasoning"]))
        else:
            events.append(CallStart(index, entry["call"], entry.get("id")))
            if entry["arguments"]:
                events.append(CallArguments(index, entry["arguments"]))
            index += 1
    return events


@functools.cache
def _tokenizer(family: str) -> tokenizers.Tokenizer:
    """Byte-level BPE, trained on the family's outputs, with its markers as special tokens."""
    chosen = cases(family)
    markers = sorted({marker for case in chosen for marker in case.markers})
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(marker, normalized=False, special=True) for marker in markers],
        show_progress=False,
    )
    tokenizer.train_from_iterator([case.output for case in chosen], trainer)
    return tokenizer


def tokens(case: Case) -> list[str]:
    """The output, a token a chunk; markers are one token each."""
    encoding = _tokenizer(case.family.name).encode(case.output)
    return cut_at(case.output, {end for _, end in encoding.offsets})


def fragments(family: str) -> list[str]:
    """Pieces that outputs of the family are made of, for arbitrary texts."""
    chosen = cases(family)
    markers = {marker for case in chosen for marker in case.markers}
    pieces = {piece for case in chosen for piece in tokens(case)}
    halves = {marker[:cut] for marker in markers for cut in (1, len(marker) // 2, len(marker) - 1)}
    common = {"{", "}", "[", "]", '"', "\\", ",", ":", "(", ")", "=", ";", "'", "<", ">", "|", "\n", " ", "é", "😀"}
    whole = {case.output for case in chosen}
    return sorted({piece for piece in markers | pieces | halves | common | whole if piece})
