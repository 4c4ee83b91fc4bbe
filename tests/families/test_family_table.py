"""The table of families: what is wrong in it is refused, with the family and the field; its page is as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.text.families import Tool, ToolPlan, family_table
from gateway.text.families.family_table import read_table
from gateway.text.families.json_calls import NamedCalls
from gateway.text.families.markers import ThinkTags
from tests.families import page

ENTRY = """
families:
  acme:
    models: Acme 1
    grammar: {kind: NamedCalls, opens: [<call>], separator: <args>}
    tags: {open: <t>, close: </t>}
"""


def test_an_entry_is_a_family() -> None:
    family = read_table(ENTRY)["acme"]
    assert (family.name, family.models) == ("acme", "Acme 1")
    assert family.grammar == NamedCalls(opens=("<call>",), separator="<args>")
    assert family.tags == ThinkTags("<t>", "</t>", instead=("<call>",))
    assert family.signs == (("<call>",),)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("models:", "modells:", "modells: unknown field of ModelFamily"),
        ("models: Acme 1", "models: [Acme 1]", "models: ['Acme 1'] must be of the type str"),
        ("models: Acme 1", "model_types: acme", "model_types: 'acme' must be of the type tuple[str, ...]"),
        ("models: Acme 1", "signs: [<call>]", "signs.0: '<call>' must be of the type tuple[str, ...]"),
        ("kind: NamedCalls", "kind: NameCalls", "grammar.kind: must be one of BareCalls, "),
        ("kind: NamedCalls, ", "", "grammar.kind: must be one of BareCalls, "),
        ("separator:", "seperator:", "grammar.seperator: unknown field of NamedCalls"),
        (", separator: <args>", "", "grammar.separator: required field of NamedCalls"),
        (", separator: <args>", ", separator: 1", "grammar.separator: 1 must be of the type str"),
        ("[<call>]", "<call>", "grammar.opens: '<call>' must be of the type tuple[str, ...]"),
        (
            "[<call>]",
            "[<call>], array: maybe",
            "grammar.array: 'maybe' must be of the type typing.Literal['no', 'read', 'written']",
        ),
        ("[<call>]", "[<call>], bare: 7", "grammar.bare: 7 must be of the type bool"),
        ("open:", "opening:", "tags.opening: unknown field of ThinkTags"),
        ("close: </t>", "close: [</t>]", "tags.close: ['</t>'] must be of the type str"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(right: str, wrong: str, said: str) -> None:
    assert right in ENTRY
    with pytest.raises(ValueError, match="The model family 'acme' is invalid: ") as rejected:
        read_table(ENTRY.replace(right, wrong))
    assert said in str(rejected.value)


def test_no_name_stands_twice_in_the_table() -> None:
    def names(node: yaml.Node) -> Iterator[list[str]]:
        if isinstance(node, yaml.MappingNode):
            yield [key.value for key, _ in node.value if key.value != "<<"]
            for _, value in node.value:
                yield from names(value)

    table = Path(family_table.__file__).with_suffix(".yaml").read_text()
    found = list(names(yaml.compose(table, Loader=yaml.SafeLoader)))
    assert len(found) > 50
    assert [each for each in found if len(each) != len(set(each))] == []


TAGGED = """
families:
  acme:
    grammar:
      {kind: TaggedCalls, call: "<call name=NAME>", argument: "<a=KEY>VALUE</a>", end: </call>, section: [<c>, </c>]}
  word:
    grammar: {kind: NestedTags, opens: [<w>], call: "<w>NAMEARGUMENTS"}
"""
PLAN = ToolPlan((Tool("now", strict=True),), "auto", guide_types=frozenset({"structural_tag"}))


def form_of(text: str, name: str = "acme") -> Any:
    guide = read_table(text)[name].prepare(PLAN).guide
    return guide and json.loads(guide.text)["format"]


def test_the_fields_of_tagged_calls_are_in_their_guide() -> None:
    usual = form_of(TAGGED)
    assert (usual["triggers"], usual["stop_after_first"]) == (["<c>"], False)
    other = form_of(TAGGED.replace("section:", "once: true, trigger: '<call name=', section:"))
    assert (other["triggers"], other["stop_after_first"]) == (["<call name="], True)


def test_nested_tags_have_no_guide_whatever_their_call() -> None:
    assert form_of(TAGGED, "word") is None


def test_the_page_is_as_the_table_is() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.render(text) == text, "run `make docs`"
