"""The README's figures are those of the page of benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_cost_of_a_token_is_as_measured() -> None:
    rows = re.findall(
        r"^\| gateway tokens h2 \| (\d+) \| [\d-]+ \| ([\d.]+) \|",
        (ROOT / "benchmarks/README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )[:3]
    costs, ratios = zip(*rows, strict=True)
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert re.findall(r"(\d+) us\b", text) == list(costs)
    assert "{}, {} and {} of a gateway written".format(*ratios) in text
