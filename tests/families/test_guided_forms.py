"""Guides in the families' own forms: what they let pass, by the reference engine and by XGrammar itself."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.text.families import Family, Tool, ToolPlan
from gateway.text.families.family_table import FAMILIES
from gateway.text.guides.guide import Guide
from gateway_ops.local_stack.cache import locked
from tests.families.harness import GUIDES, Case, cases, parse, tool
from tests.families.test_guides import keeps_to as by_the_reference_engine
from tests.families.written import call_texts, calls_in, content_in, exact_tool, native, prompts, texts_of

# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

VERSION = "0.1.25"  # of XGrammar, which TensorRT-LLM 1.2 carries
FOLDER = Path(__file__).resolve().parents[2] / "build" / f"xgrammar-{VERSION}"
ARGUMENTS = {"query": "größer 1, 2", "limit": 3}
PROPERTIES = {"query": {"type": "string"}, "limit": {"type": "integer"}}
SEARCH = tool(
    "search",
    {"type": "object", "properties": PROPERTIES, "required": [*PROPERTIES], "additionalProperties": False},
    strict=True,
)
NOW = tool("now", strict=True)
SAID = (exact_tool("search", ARGUMENTS), NOW)
RESPONSE = Guide("json_schema", json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))

Keeps = Callable[[Guide, str], bool]


def fetch(folder: Path) -> None:
    """Install its wheel into a folder, which is never seen half full."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        whole = Path(made) / "whole"
        done = subprocess.run([*install, "--target", whole, f"xgrammar=={VERSION}"], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"XGrammar cannot be fetched: {done.stderr.decode().strip()[-200:]}")
        whole.rename(folder)


@functools.cache
def xgrammar() -> Any:
    """Its core alone: the Python package around it would bring PyTorch."""
    with locked(FOLDER.with_name(f"{FOLDER.name}.lock")):
        if not FOLDER.exists():
            fetch(FOLDER)
    (library,) = FOLDER.glob("xgrammar/xgrammar_bindings*.so")
    spec = importlib.util.spec_from_file_location("xgrammar_bindings", library)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def compiled(text: str) -> Any:
    """A structural tag over a vocabulary of bytes, whose id 256 ends an answer."""
    core = xgrammar()
    vocabulary = core.TokenizerInfo([bytes([each]) for each in range(256)] + [b"</s>"], 0, 257, [256], False)
    return core.GrammarCompiler(vocabulary, 1, False, -1).compile_structural_tag(text)


def by_xgrammar(guide: Guide, text: str) -> bool:
    """Whether XGrammar lets the text pass as a whole answer."""
    assert guide.kind == "structural_tag"
    matcher = xgrammar().GrammarMatcher(compiled(guide.text), None, False, 0)
    return bool(matcher.accept_string(text.encode(), False)) and bool(matcher.accept_token(256, False))


def formed() -> list[str]:
    """The families whose own form can be guided."""
    return [name for name, family in FAMILIES.items() if native(family, SAID, prompts(family)[0]) is not None]


each_family = pytest.mark.parametrize("family", [FAMILIES[name] for name in formed()], ids=formed())
each_engine = pytest.mark.parametrize(
    "keeps",
    [by_the_reference_engine, pytest.param(by_xgrammar, marks=pytest.mark.long)],
    ids=["reference engine", "XGrammar"],
)


def guide(family: Family, prompt: str, **fields: Any) -> Guide:
    """The guide of strict tools."""
    turn = ToolPlan(**{"tools": (SEARCH, NOW), "choice": "auto", "guide_types": GUIDES, **fields})
    made = family.prepare(turn, prompt)
    assert made.guide is not None
    assert made.guided
    return made.guide


def answers(family: Family, prompt: str) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Answers of calls alone, or behind reasoning, and the calls in them."""
    turn = ToolPlan(tools=SAID, choice="required", guide_types=GUIDES)
    form = native(family, SAID, prompt)
    assert form is not None
    for text in texts_of(form):
        found = parse(family.parser(turn, family.prepare(turn, prompt), prompt), text)
        assert not content_in(found)
        yield text, calls_in(found)


@each_family
@each_engine
def test_demanded_calls(family: Family, keeps: Keeps) -> None:
    for prompt in prompts(family):
        required = guide(family, prompt, choice="required")
        single = guide(family, prompt, choice="required", parallel=False)
        named = guide(family, prompt, choice="required", parallel=False, single=True, tools=(NOW,))
        seen = set()
        for text, calls in answers(family, prompt):
            seen.add(len(calls))
            assert keeps(required, text)
            assert keeps(single, text) is (len(calls) == 1)
            assert keeps(named, text) is (calls == [("now", {})])
            assert not keeps(required, text + " More.")
            assert not keeps(required, text[: len(text) // 2])
            for good, bad in (("search", "sear"), ("now", "no"), ("3", '"3"'), ("3", "x")):
                assert not keeps(required, text.replace(good, bad)) or good not in text
        assert 1 in seen
        assert not keeps(required, "")
        assert not keeps(required, "Just text.")


@each_family
@each_engine
def test_strict_calls_among_text(family: Family, keeps: Keeps) -> None:
    for prompt in prompts(family):
        auto = guide(family, prompt)
        for text, calls in answers(family, prompt):
            if len(calls) == 1 or not _once(family):
                assert keeps(auto, text), text
            if calls[0][0] == "search":
                assert not keeps(auto, text.replace("3", '"3"'))
                assert not keeps(auto, text.replace("search", "sear"))


def _once(family: Family) -> bool:
    """Whether the family was taught one call an answer."""
    return bool(family._call_format.once)  # type: ignore[attr-defined]


@each_family
@each_engine
def test_a_structure_beside_calls(family: Family, keeps: Keeps) -> None:
    prompt = prompts(family)[-1]
    either = guide(family, prompt, response=RESPONSE)
    tags = getattr(family, "tags", None)
    final = tags.final if tags else ""
    assert keeps(either, final + '{"n": 3}')
    assert not keeps(either, final + '{"n": "x"}')
    for text, calls in answers(family, prompt):
        assert keeps(either, text) or len(calls) > 1


def recorded_guides(case: Case) -> Iterator[Guide]:
    """The guides under which a recorded answer could have been written: of its tools, made strict."""
    used = {name: json.loads(text) for name, text in call_texts(case.events)}
    for choice, demands in itertools.product(("auto", "required"), (True, False)):
        closed = tuple(_closed(each, used[each.name], demands=demands) for each in case.turn.tools if each.name in used)
        turn = replace(case.turn, tools=closed, guide_types=GUIDES, choice=choice, response=None)  # type: ignore[arg-type]
        made = case.family.prepare(turn, case.prompt)
        if made.guided and made.guide is not None and made.guide.kind == "structural_tag":
            yield made.guide


def _closed(tool: Tool, used: Mapping[str, Any], *, demands: bool) -> Tool:
    """The tool as a strict one that has these arguments only, and may demand them."""
    properties = {name: value for name, value in (tool.parameters or {}).get("properties", {}).items() if name in used}
    parameters = {**(tool.parameters or {}), "type": "object", "properties": properties, "additionalProperties": False}
    return replace(tool, strict=True, parameters={**parameters, "required": [*properties] if demands else []})


@each_family
@each_engine
def test_a_published_call_is_let_pass(family: Family, keeps: Keeps) -> None:
    """One of the recorded answers at least is as the guide has it: the form is the one that models write."""
    calls = [case for case in cases(family.name) if call_texts(case.events) and not (case.cut or case.guided)]
    guides = [(guide, case.output) for case in calls for guide in recorded_guides(case)]
    assert guides
    # The test's tokenizer has a token of its own for this letter.
    assert any(keeps(guide, output.replace("ü", "u")) for guide, output in guides)


# Reasoning and two calls with the line ends of the models' chat templates.
DEMANDED = {
    "cohere": 'Hm.<|END_THINKING|><|START_ACTION|>[\n    {"tool_name": "now", "parameters": {}},\n'
    '    {"tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
    "deepseek_v3": "Hm.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
    "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>",
    "deepseek_v32": 'Hm.</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n'
    '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "glm": "Hm.</think>\n<tool_call>now\n</tool_call>\n<tool_call>now\n</tool_call>",
    "glm47": "Hm.</think><tool_call>now</tool_call><tool_call>now</tool_call>",
    "granite_20b": '<function_call> {"name": "now", "arguments": {}}\n<function_call> {"name": "now", "arguments": {}}',
    "minicpm5": 'Hm.\n</think>\n\n<function name="now"></function>\n<function name="now"></function>',
    "minimax_m2": 'Hm.\n</think>\n\n\n<minimax:tool_call>\n<invoke name="now">\n</invoke>\n'
    '<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    "nemotron3": "Hm.\n</think>\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n"
    "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "qwen3": 'Hm.\n</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "step3p5": "Hm.\n</think>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"
    "<tool_call>\n<function=now>\n</function>\n</tool_call>",
}


@pytest.mark.parametrize("name", DEMANDED)
@each_engine
def test_demanded_calls_have_the_line_ends_of_templates(name: str, keeps: Keeps) -> None:
    family = FAMILIES[name]
    tags = getattr(family, "tags", None)
    prompt = f"{tags.open}\n" if tags else ""
    turn = ToolPlan(tools=(NOW, SEARCH), choice="required", guide_types=GUIDES)
    preparation = family.prepare(turn, prompt)
    assert preparation.guide is not None
    assert keeps(preparation.guide, DEMANDED[name])
    events = parse(family.parser(turn, preparation, prompt), [DEMANDED[name]], cut=False)
    assert calls_in(events) == [("now", {}), ("now", {})]
    assert content_in(events).strip() == ""


@each_engine
def test_a_demanded_call_has_either_form_of_a_message(keeps: Keeps) -> None:
    """GigaChat 3 was taught the role of a message, and 3.1 a marker."""
    turn = ToolPlan(tools=(NOW, SEARCH), choice="required", guide_types=GUIDES)
    made = FAMILIES["gigachat3"].prepare(turn, "").guide
    assert made is not None
    assert keeps(made, '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "now", "arguments": {}}')
    assert keeps(made, '<|function_call|>{"name": "now", "arguments": {}}')
    assert not keeps(made, '<|message_sep|>\n\nassistant<|role_sep|>\n{"name": "now", "arguments": {}}')
