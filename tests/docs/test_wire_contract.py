"""Citations of the wire contract: each names a section that the page has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing" / "wire-contract.md"
# "wire contract 1.3", "wire contract 1.3, 2.8 and 3.2", "wire contract 1.1 to 1.6"; over the end of a line, too.
_CITATION = re.compile(r"wire contract,?\s((?:(?:,|and|to|\s|#)*\d+(?:\.\d+)+)+|\d+\b)", re.IGNORECASE)


def test_each_cited_section_of_the_wire_contract_exists() -> None:
    sections = set(re.findall(r"(?m)^#{2,4} (\d+(?:\.\d+)*)", PAGE.read_text()))
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [ROOT / name for name in names if name.endswith((".py", ".md", ".pbtxt", ".yaml", ".yml", ".toml"))]
    citations = [
        (file, number)
        for file in files
        if file != PAGE and file.exists()
        for each in _CITATION.findall(file.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+(?:\.\d+)*", each)
    ]
    assert [each for each in citations if each[1] not in sections] == []
    assert len(citations) > 40, "the code cites the page; a pattern that finds nothing proves nothing"
