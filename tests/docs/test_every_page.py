"""The pages: each says whom it serves, and their tables fit on a screen."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY", "benchmarks/README")]
# Written by the benchmarks, with whatever columns they measure.
_LINKED = re.compile(r"\]\([^)]*\)")
_RESULTS = re.compile(r"<!-- results: (\w+) -->.*?<!-- end: \1 -->", re.DOTALL)


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_a_page_opens_with_its_readers(page: Path) -> None:
    title, *lines = page.read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if line and not line.startswith("<!--"))
    assert title.startswith("# ")
    assert first.startswith("For ")


@pytest.mark.parametrize("page", DOCS + OTHERS, ids=lambda page: page.stem)
def test_rows_are_short(page: Path) -> None:
    text = _RESULTS.sub("", page.read_text(encoding="utf-8"))
    rows = [_LINKED.sub("]", line) for line in text.splitlines() if line.startswith("|")]
    assert [row for row in rows if len(row) >= 160] == []


def test_each_link_between_pages_leads_to_a_page_and_a_heading() -> None:
    lost = []
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "deploy/helm/README.md" in pages
    for page in map(ROOT.joinpath, pages.splitlines()):
        for target, anchor in re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
            found = page.parent / target if target else page
            if not found.is_file() or (anchor and anchor not in _anchors(found)):
                lost.append(f"{page.name}: {target}#{anchor}")
    assert lost == []


def _anchors(page: Path) -> set[str]:
    """The anchors that a heading gets: small letters, spaces as hyphens, no other marks."""
    headings = re.findall(r"(?m)^#{1,6} (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
