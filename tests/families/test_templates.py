"""The choice of a family, from what it looks at in the chat templates of public repositories."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.text.families.family_choice import choose
from tests.families import templates

ENTRIES = templates.load()


@pytest.mark.parametrize("name", ENTRIES)
def test_a_public_template_has_its_family(name: str) -> None:
    entry = ENTRIES[name]
    recorded = {key: entry[key] for key in ("family", "by", "doubts") if key in entry}
    assert templates.chosen(choose(templates.evidence(entry))) == recorded


def test_there_are_enough_of_them() -> None:
    assert len({entry["sha256"] for entry in ENTRIES.values()}) >= 60
    assert {"repository", "path", "commit"} <= set.intersection(*(set(entry) for entry in ENTRIES.values()))


def test_a_call_that_a_template_writes_is_read_or_doubted() -> None:
    for name, entry in ENTRIES.items():
        written = templates.evidence(entry).written
        if written is not None and entry["family"] in ("plain", "think"):
            assert entry["doubts"], name


def test_no_family_is_a_rival_of_another() -> None:
    told = Counter(doubt for entry in ENTRIES.values() for doubt in entry.get("doubts", ()))
    assert not [doubt for doubt in told if doubt.startswith("its chat template also has the markers")]


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if "writes" in entry])
def test_a_setting_that_does_not_read_the_template_is_doubted(name: str) -> None:
    evidence = templates.evidence(ENTRIES[name])
    assert evidence.written is not None
    foreign = "kimi" if ENTRIES[name]["family"] != "kimi" else "hermes"
    choice = choose(evidence, foreign)
    assert choice.family.name == foreign
    if not evidence.written.bare:
        assert any(f"which {foreign} does not read" in doubt for doubt in choice.doubts)
    assert choose(evidence, "plain").family.name == "plain"
