"""The page of model families: writes the generated part of docs/families.md from the table of families.

Run ``python -m tests.families.page [FILE]`` in the root of the repository. What stands before the first of the two marks
in the page and behind the second is written by hand, and kept.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from gateway.families import CallStart, Tool, ToolPlan
from gateway.families.family_table import CLAIMING, PLAIN, THINK
from gateway.families.model_family import ModelFamily
from tests.families.harness import GUIDES, cases
from tests.families.written import exact_tool, texts_of

PAGE = Path("docs/families.md")
BEGIN = "<!-- From here on written by `make docs` from gateway/families/family_table.py. -->\n"
END = "<!-- Up to here written by `make docs`. -->\n"
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
_HEAD = """\
## The families

What guides hold is in [Guarantees](#guarantees); how a call looks, by which models a family is known, and where its form
is described, is in the entries below the table.

| family | models | reasoning | strict tools in `auto` |
|---|---|---|---|
"""
_NOTES = """
(1) Where the form can hold the tool's schema: the names of the arguments are closed (`additionalProperties: false`), and
strings have no limits besides `enum`; otherwise parsed.
"""


def render(page: str) -> str:
    """The whole page.

    Args:
        page: as it is now.
    """
    before, rest = page.split(BEGIN)
    families = (*sorted(CLAIMING, key=lambda family: family.name), THINK, PLAIN)
    rows = (f"| {' | '.join(_row(family))} |\n" for family in families)
    entries = "\n".join(_entry(family) for family in families if family.grammar is not None)
    return "".join([before, BEGIN, _HEAD, *rows, _NOTES, "\n", entries, END, rest.split(END)[1]])


def _row(family: ModelFamily) -> Iterator[str]:
    yield f"`{family.name}`"
    yield family.models
    if family.tags is not None:
        yield f"`{family.tags.open.replace('|', chr(92) + '|')}`"
    else:
        yield "in messages of its own" if family.reasons else "-"
    yield "-" if family.grammar is None else _strict(family)


def _strict(family: ModelFamily) -> str:
    guided = [
        family.prepare(ToolPlan(tools=(tool,), choice="auto", guide_types=GUIDES)).guided for tool in (_EXACT, _HARD)
    ]
    return {(True, True): "guided", (True, False): "guided (1)", (False, False): "parsed"}[guided[0], guided[1]]


def _entry(family: ModelFamily) -> str:
    facts = [
        ("Known by", _listed(sorted({*family.model_types, *family.older_types}))),
        ("or, where its template fits, by", _listed(sorted(family.shared_types))),
        ("Ends a turn with", _listed(family.stop)),
    ]
    known = "; ".join(f"{name} {value}" for name, value in facts if value)
    lines = [f"### {family.name}", "", f"{family.models}. {known}".strip(), ""]
    lines += [*textwrap.indent(_call(family), "    ").splitlines(), ""]
    lines += [f"- <{source}>" for source in family.sources]
    return "\n".join([*lines, ""])


def _listed(texts: Iterator[str] | list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _call(family: ModelFamily) -> str:
    """A call in the family's form: as its guide has it, else the shortest recorded one."""
    plan = ToolPlan(tools=(_EXACT,), choice="required", single=True, parallel=False, guide_types=GUIDES)
    guide = family.prepare(plan).guide
    if guide is not None and guide.kind == "structural_tag":
        return next(texts_of(json.loads(guide.text)["format"]))
    calls = [
        case.output
        for case in cases(family.name)
        if [type(event) for event in case.events].count(CallStart) == 1 and not case.cut
    ]
    return min(calls, key=len)


def main() -> None:
    """Write the page to the file that the command line names, docs/families.md without one."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    path.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
