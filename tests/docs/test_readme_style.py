"""The README is read once: short sentences, lines that fit on a screen, figures of the page of benchmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROSE = re.sub(r"(?ms)^```.*?^```$", "", README)
MOST_WORDS = 25
MOST_CHARACTERS = 160
ROWS = {
    "64 streams, 20 ms a token": "64x20ms",
    "256 streams, 10 ms a token": "256x10ms",
    "64 streams, as fast as possible": "burst",
}


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs, items of lists and cells of tables, with links as their words."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=[-|#]|\d+\. )", plain):
        for part in block.split("|") if block.startswith("|") else [block]:
            yield from re.split(r"(?<=[.!?])[*`]*\s+", part)


def test_sentences_are_short() -> None:
    found = [" ".join(sentence.split()) for sentence in sentences(PROSE)]
    assert len(found) > 60
    assert [each for each in found if len(re.findall(r"\S*\w\S*", each)) > MOST_WORDS] == []
    assert len(list(sentences("One. Two `a.b`.\nThree.\n\n- four. Five\n- six\n\n| seven | eight |"))) > 7


def test_lines_of_prose_fit_on_a_screen() -> None:
    assert [line for line in PROSE.splitlines() if len(line) > MOST_CHARACTERS] == []


def test_figures_are_those_of_the_benchmarks() -> None:
    page = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    relay = page.partition("<!-- results: relay -->")[2].partition("<!-- end: relay -->")[0]
    assert "2026-11-26, 16 x Intel(R) Xeon(R)" in relay
    for name, load in ROWS.items():
        own, naive = (_row(relay.partition(f"| {load} |")[2], kind) for kind in ("gateway tokens h2", "naive tokens"))
        factor = round(1 / float(own[3]))
        delays = ", ".join(f"{row[5].rpartition('/')[2].strip()} ms" for row in (own, naive))
        assert f"| {name} | {own[1]} us/token | {naive[1]} us/token | {factor}x | {delays} |" in README
    requests = page.partition("<!-- results: requests -->")[2]
    own, naive = (_row(requests, kind) for kind in ("gateway tokens h2", "naive tokens"))
    factor = f"{1 / float(own[3]):.1f}"
    assert f"| {own[1]} ms/request | {naive[1]} ms/request | {factor}x | |" in README
    assert "4 workers on as many cores" in page
    assert "| 1,000 | first | 800 | 14 / 82 |" in page
    assert "Four workers held 800 requests per second with new prompts of 1,000 tokens" in README
    assert "first event p50 14 ms, p99 82 ms" in README


def _row(text: str, kind: str) -> list[str]:
    """The first row of a kind, by cells."""
    (line,) = re.findall(rf"(?m)^\| {kind} \|.*", text)[:1]
    return [cell.strip() for cell in line.strip("|").split("|")]
