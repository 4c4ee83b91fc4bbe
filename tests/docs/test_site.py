"""The documentation as a site: every page is in the index, and the site needs nothing but itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)|<link(?=[^>]* rel=\"stylesheet)[^>]* href=\"([^\"]+)")


def test_every_page_is_in_the_index_once() -> None:
    listed = re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(listed) == sorted(pages)


@pytest.mark.long
def test_the_site_is_built_without_a_warning() -> None:
    """A link that leads nowhere is a warning, and a warning is an error."""
    build = ["make", "-s", "site", "SOURCE=https://git.example/owner/gateway.git"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=600)
    site = ROOT / "build" / "site"
    pages = {page.relative_to(site): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert {page.with_suffix(".html") for page in (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))} <= set(pages)
    foreign = [found for text in pages.values() for found in _LOADED.findall(text) if "//" in "".join(found)]
    assert foreign == []
    assert 'href="https://git.example/owner/gateway/blob/HEAD/README.md"' in pages[Path("index.html")]
    index = (site / "llms.txt").read_text(encoding="utf-8")
    assert index.startswith("# Triton OpenAI gateway\n\n> For everyone")
    linked = re.findall(r"\]\(([^)]+)\)", index)
    assert len(linked) == len(list(DOCS.rglob("*.md"))) - 1
    assert [name for name in linked if not (site / name).is_file()] == []
