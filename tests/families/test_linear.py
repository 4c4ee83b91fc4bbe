from __future__ import annotations

import tracemalloc

import pytest

from gateway.text.families import CallStart, Family, ToolPlan
from gateway.text.families.family_parser import FamilyParser
from tests.families.harness import cases, families_recorded
from tests.families.written import calls_text, each_formed, exact_tool, is_single, prompts

LENGTH = 100_000
LIMIT = 4


def _texts(family: str, length: int) -> dict[str, str]:
    """Long texts by name: the family's outputs repeated, and what is hardest for a parser."""
    markers = sorted({marker for case in cases(family) for marker in case.markers})
    call = max((case.output for case in cases(family) if len(case.events) > 1), key=len)
    pieces = {
        "prose": "All is well, and 3 < 4. ",
        "less-than": "<",
        "partial markers": "".join(marker[:-1] for marker in markers) or "<",
        "markers": "".join(markers) or "<",
        "brackets": "[",
        "braces": '{"a":',
        "space": " \n",
        "outputs": call,
        "quotes": '"',
        "backslashes": "\\",
        "parentheses": "f(",
    }
    texts = {name: (piece * (length // len(piece) + 1))[:length] for name, piece in pieces.items()}
    for number, marker in enumerate(markers):
        texts[f"after marker {number}: string"] = (marker + '{"name": "' + "x" * length)[:length]
        texts[f"after marker {number}: deep"] = (marker + '{"name": "f", "arguments": ' + '{"a":[' * length)[:length]
    for number, case in enumerate(cases(family)):
        if '"' in case.output:
            before, _, after = case.output.rpartition('"')
            texts[f"long string {number}"] = before + "x<" * (length // 2) + '"' + after
    return texts


@pytest.mark.parametrize("family", families_recorded())
def test_a_character_is_looked_at_less_than_four_times(family: str) -> None:
    _check(family, False, 1, LENGTH // 200)
    _check(family, True, 1009, LENGTH // 20)


@each_formed
def test_many_calls_and_long_ones_are_read(family: Family) -> None:
    _calls(family, 100, 5_000)


def _calls(family: Family, count: int, length: int) -> None:
    """Read many calls, and one long one, in pieces; a parser keeps no more than the call that it reads."""
    prompt = prompts(family)[-1]
    tools = (exact_tool("f", {"a": "VALUE"}),)
    turn = ToolPlan(tools=tools, choice="auto")
    call = calls_text(family, tools) + "\n"
    answers = [(call.replace("VALUE", "v" * length), 1, length)]
    if not is_single(family) and family.name != "xlam":  # whose list of calls is all of an answer
        answers.append((call * count, count, 0))
    tracemalloc.start()
    for text, calls, kept in answers:
        parser = family.parser(turn, family.prepare(turn, prompt), prompt)
        tracemalloc.reset_peak()
        before, started = tracemalloc.get_traced_memory()[0], 0
        for start in range(0, len(text), 1009):
            started += sum(isinstance(event, CallStart) for event in parser.feed(text[start : start + 1009]))
        started += sum(isinstance(event, CallStart) for event in parser.finish(cut=False))
        assert started == calls
        assert tracemalloc.get_traced_memory()[1] - before < 100_000 + 8 * kept
        assert isinstance(parser, FamilyParser)
        assert parser.source.examined < LIMIT * len(text)
    tracemalloc.stop()


def _check(family: str, eager: bool, size: int, length: int) -> None:
    for name, text in _texts(family, length).items():
        parser = cases(family)[0].parser(eager=eager)
        for start in range(0, len(text), size):
            parser.feed(text[start : start + size])
        parser.finish(cut=True)
        assert isinstance(parser, FamilyParser)
        assert parser.source.examined < LIMIT * len(text), (name, size)
