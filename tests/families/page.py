"""The page of model families: writes the generated part of docs/reference/families.md from the table of families.

Run ``python -m tests.families.page [FILE]`` in the root of the repository. What stands before the first of the two
marks in the page and behind the second is written by hand, and kept.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.text.families import CallArguments, CallStart, Event, Tool, ToolPlan
from gateway.text.families.bare_calls import BareCalls
from gateway.text.families.family_table import CLAIMING, PLAIN, THINK
from gateway.text.families.json_calls import NamedCalls
from gateway.text.families.model_family import ModelFamily, writes_calls
from tests.families.harness import GUIDES, cases
from tests.families.written import exact_tool, native, prompts, texts_of

PAGE = Path("docs/reference/families.md")
BEGIN = "<!-- From here on written by `make docs` from gateway/text/families/family_table.yaml. -->\n"
END = "<!-- end -->\n"
_ARGUMENTS = {"city": "Rome"}
_EXACT = exact_tool("get_weather", _ARGUMENTS)
_HARD = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 2}},
        "required": ["city"],
        "additionalProperties": False,
    },
    strict=True,
)
_FORMS = {
    "ChannelCalls": "elements of tokens",
    "GemmaCalls": "Gemma's",
    "HarmonyCalls": "name, JSON",
    "JsonCalls": "JSON",
    "NamedCalls": "name, JSON",
    "TaggedCalls": "tags",
    "NestedTags": "tags",
}
"""The words for what the grammars read."""
_HEAD = """\
## The families

What guides hold is in [Guarantees](#guarantees). How a call looks, by what a family is known, and where its form is
described, is in the entries below the table.

| family | models | calls | reasoning | strict tools in `auto` |
|---|---|---|---|---|
"""
_NOTES = """
(1) Where the form can hold the tool's schema: the names of the arguments are closed (`additionalProperties: false`),
and strings have no limits but `enum`; otherwise parsed.

Those that are always parsed, and why:

"""
_PARSED = {
    "minimax_m3": "objects and lists are tags that nest, and a structural tag holds no schema as tags.",
    "pythonic": "a call begins with a bracket, which stands in any text.",
}
"""Why a family's own form is not guided."""


def render(page: str) -> str:
    """The whole page.

    Args:
        page: as it is now.
    """
    before, rest = page.split(BEGIN)
    calling = sorted(CLAIMING, key=lambda family: family.name)
    rows = (f"| {' | '.join(_row(family))} |\n" for family in (*calling, THINK, PLAIN))
    parsed = [family.name for family in calling if writes_calls(family) and _strict(family) == "parsed"]
    reasons = (f"- `{name}`: {_PARSED[name]}\n" for name in parsed)
    entries = "\n".join(map(_entry, calling))
    return "".join([before, BEGIN, _HEAD, *rows, _NOTES, *reasons, "\n", entries, END, rest.split(END)[1]])


def _row(family: ModelFamily) -> Iterator[str]:
    yield f"`{family.name}`"
    yield family.models
    yield _form(family)
    yield "-" if family.tags is None else f"`{family.tags.open.replace('|', chr(92) + '|')}`"
    yield _strict(family) if writes_calls(family) else "-"


def _form(family: ModelFamily) -> str:
    if not writes_calls(family):
        return "-"
    if isinstance(family.grammar, BareCalls):
        return "JSON" if family.grammar.call.startswith("{") else "Python"
    if isinstance(family.grammar, NamedCalls) and family.grammar.array == "written":
        return "JSON"
    kind = family.grammar if isinstance(family.grammar, type) else type(family.grammar)
    return _FORMS[kind.__name__]


def _strict(family: ModelFamily) -> str:
    guided = [
        family.prepare(ToolPlan(tools=(tool,), choice="auto", guide_types=GUIDES)).guided for tool in (_EXACT, _HARD)
    ]
    return {(True, True): "guided", (True, False): "guided (1)", (False, False): "parsed"}[guided[0], guided[1]]


def _entry(family: ModelFamily) -> str:
    facts = [
        ("`config.json`", _listed(sorted({*family.model_types, *family.older_types}))),
        ("`config.json`, where the template tells no more", _listed(sorted(family.shared_types))),
        ("template", " or ".join(" with ".join(map(_code, group)) for group in family.signs)),
        ("ends a turn with", _listed(family.stop)),
    ]
    lines = [f"### {family.name}", "", f"{family.models}:", ""]
    lines += [*textwrap.indent(_call(family).strip("\n"), "    ").splitlines(), ""]
    lines += [f"- {name}: {value}" for name, value in facts if value]
    lines += [f"- source: <{source}>" for source in family.sources]
    return "\n".join([*lines, ""])


def _code(text: str) -> str:
    return f"`{text}`".replace("\n", "\\n")


def _listed(texts: Iterator[str] | list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(_code, texts))


def _call(family: ModelFamily) -> str:
    """A call in the family's form: as its guide has it, else the shortest recorded one. Without calls, an answer."""
    if not writes_calls(family) and family.tags is not None:
        return f"{family.tags.open}Thoughts.{family.tags.close}Answer."
    form = native(family, [_EXACT], prompts(family)[-1])
    if form is not None:
        return next(texts_of(form))
    outputs = [case.output for case in cases(family.name) if _is_call(case.events) and not case.cut]
    return min(outputs, key=len)


def _is_call(events: Sequence[Event]) -> bool:
    return [type(event) for event in events] == [CallStart, CallArguments] and "{}" not in str(events[1])


def main() -> None:
    """Write the page to the file that the command line names, docs/reference/families.md without one."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    path.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
