"""Citations of the wire contract: each names a section that the page has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing" / "wire-contract.md"
# "wire contract 1.3", "wire contract 1.3, 2.8 and 3.2", "wire contract 1.1 to 1.6"; over the end of a line, too.
_CITATION = re.compile(r"wire contract,?\s((?:(?:,|and|to|\s|#)*\d+(?:\.\d+)+)+|\d+\b)", re.IGNORECASE)


def _sections() -> set[str]:
    return set(re.findall(r"(?m)^#{2,4} (\d+(?:\.\d+)*)", PAGE.read_text()))


def _citations() -> list[tuple[str, str]]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for name in names:
        file = ROOT / name
        if file.suffix in {".py", ".md", ".pbtxt", ".yaml", ".yml", ".toml"} and file != PAGE and file.exists():
            text = file.read_text(encoding="utf-8")
            found += [
                (name, number) for each in _CITATION.findall(text) for number in re.findall(r"\d+(?:\.\d+)*", each)
            ]
    return found


def test_each_cited_section_of_the_wire_contract_exists() -> None:
    sections = _sections()
    citations = _citations()
    assert [each for each in citations if each[1] not in sections] == []
    assert len(citations) > 40, "the code cites the page; a pattern that finds nothing proves nothing"


def test_no_table_row_is_too_wide_to_read() -> None:
    wide = [
        number
        for number, line in enumerate(PAGE.read_text().splitlines(), 1)
        if line.startswith("|") and len(line) > 160
    ]
    assert wide == []
