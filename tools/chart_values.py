"""Writes the table of the Helm chart's values in deploy/helm/README.md from the comments of values.yaml.

Run ``python -m tools.chart_values`` (part of ``make docs``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CHART: Final = Path(__file__).parents[1] / "deploy" / "helm"
PAGE: Final = CHART / "README.md"
_LINE: Final = re.compile(r"(?P<indent> *)(?P<name>[\w-]+):(?: (?P<default>[^ #].*?))?(?: {4}# (?P<meaning>.*))?")
_TABLE: Final = re.compile(r"(?s)(<!-- values: written by `python -m tools.chart_values` -->\n).*?(<!-- end -->)")


def rows() -> Iterator[tuple[str, str, str]]:
    """Each value that a comment explains: its path, its default as YAML (empty: a map of lines), the comment."""
    path: list[str] = []
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        if found := _LINE.fullmatch(line):
            path[len(found["indent"]) // 2 :] = [found["name"]]
            if found["meaning"]:
                yield ".".join(path), found["default"] or "", found["meaning"]


def replaced(page: str) -> str:
    """The page with the table of today."""
    lines = [
        f"| `{name}` | {f'`{default}`' if default else 'a map'} | {meaning} |\n" for name, default, meaning in rows()
    ]
    table = "".join(["\n| value | default | meaning |\n|---|---|---|\n", *lines, "\n"])
    return _TABLE.sub(lambda found: found[1] + table + found[2], page)


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
