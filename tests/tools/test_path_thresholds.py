"""Which comparisons with a numeric constant choose a path or reject, and which circles of imports are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.import_circles import import_circles
from tools.path_thresholds import ThresholdSearch
from tools.source_modules import read_modules

CONSTANTS = "LIMIT = 4 * 2**10\nTWICE: int = 2 * LIMIT\nNAME = 'four'\nLISTS = [4]\n"
PATHS = [
    "if 0 < len(x) <= LIMIT and x:\n    x = x[:4]",
    "if x > 2 * LIMIT - 1:\n    x = 0",
    "while x >= TWICE:\n    x -= 1",
    "x = 1 if x < LIMIT else 2",
    "def is_long(x):\n    return len(x) > LIMIT",
    "x = [y for y in x if y < LIMIT]",
    "if x > LIMIT:\n    while x:\n        x -= 1\n    raise ValueError",
    "if x > LIMIT:\n    x = 1\nraise ValueError",
    "def give(x):\n    if x > LIMIT:\n        x = 4\n        return None\n    return x",
    "y = 2 if foreseen(x > LIMIT) else 3",
]
REJECTING = [
    "if len(x) > LIMIT:\n    text = 'long'\n    raise ValueError(text)",
    "if len(x) > TWICE:\n    raise ValueError\nelif x:\n    x = 1",
    "def parse(x):\n    if x <= LIMIT:\n        return x\n    raise ValueError",
    "def check(x):\n    if x > LIMIT:\n        return api_error('long')\n    return x",
    "def problems(x):\n    if x > LIMIT:\n        yield Problem('long')",
    "x = failure('long') if x > LIMIT else x",
    "assert x < LIMIT",
    "raise ValueError('long' if x > LIMIT else 'short')",
    "def problems(x):\n    if x > LIMIT:\n        yield Problem('long')\n        return\n    x = 4",
    "def begin(x):\n    if x > LIMIT:\n        link.drop('long')\n        return None\n    return x",
    "need(found and x < LIMIT)",
    "if len(x) > LIMIT:\n    complain('only some are used')\nelse:\n    x = 0",
    "def check(x):\n    if x < LIMIT:\n        return\n    text = 'long'\n    log(text)\n    transport.abort()",
    "def stop() -> NoReturn: ...\n\n\nif x > LIMIT:\n    stop()",
]
NEITHER = [
    "if x == LIMIT:\n    x = 0",
    "if x % LIMIT < y:\n    x = 0",
    "if x * LIMIT % 1 < y:\n    x = 0",
    "if x > min(LIMIT, 8):\n    x = 0",
    "x = max(x, LIMIT)",
    "if x > NAME:\n    x = 0",
    "if x > LISTS[0]:\n    x = 0",
    "if x > y[LIMIT]:\n    x = 0",
    "if x > 4096:\n    x = 0",
    "if x.status >= LIMIT:\n    x = 0",
    "if LIMIT <= int(status) < TWICE:\n    x = 0",
    "MOST = 2**63 - 1\nx = [y for y in x if y <= MOST]",
    "SEEDS = 2**32\nif x >= SEEDS:\n    x = 0",
]


def _found(folder: Path, code: str, imports: str) -> tuple[list[str], list[str]]:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from package.constants import LIMIT, LISTS, NAME, TWICE\n")
    (package / "constants.py").write_text(CONSTANTS)
    (package / "user.py").write_text(f"{imports}\n{code}\n")
    search = ThresholdSearch(read_modules(folder, "package"))
    return [found.name for found in search.path_thresholds], [found.name for found in search.rejecting_bounds]


@pytest.mark.parametrize("code", [*PATHS, *REJECTING, *NEITHER])
def test_a_comparison_by_order_with_a_constant_chooses_a_path_or_rejects(tmp_path: Path, code: str) -> None:
    name = ["TWICE" if "TWICE" in code else "LIMIT"]
    assert _found(tmp_path, code, CONSTANTS) == (name if code in PATHS else [], name if code in REJECTING else [])


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("from package.constants import LIMIT", "LIMIT"),
        ("from package import LIMIT as MOST", "MOST"),
        ("from package import constants", "constants.LIMIT"),
    ],
)
def test_an_imported_constant_counts_where_it_is_defined(tmp_path: Path, imports: str, name: str) -> None:
    assert _found(tmp_path, f"if len(x) > {name}:\n    x = x[:4]", imports) == (["LIMIT"], [])


def test_code_lines_are_those_without_text(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    text = '"""Module.\n\nMore.\n"""\n\n# Comment.\nX = """\n# text\n\n"""\n\n\ndef f():\n    """Do."""\n    return X\n'
    text += "\n\ndef g(): ...\n"
    (tmp_path / "package" / "module.py").write_text(text)
    assert read_modules(tmp_path, "package")["package.module"].code_lines() == 6


OTHER = "from p import a\n\ndef two():\n    return a.ONE\n"


@pytest.mark.parametrize(
    ("imports", "other", "circles"),
    [
        ("from p.b import two", OTHER, 1),
        ("import p.b", OTHER, 1),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import two", OTHER, 1),
        ("def one():\n    from p import b\n    return b", OTHER, 1),
        ("from p.b import two", "import a\n", 0),
        ("", OTHER, 0),
    ],
)
def test_a_circle(tmp_path: Path, imports: str, other: str, circles: int) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text(f"{imports}\nONE = 1\n")
    (package / "b.py").write_text(other)
    found = import_circles(read_modules(tmp_path, "p"))
    assert len(found) == circles
    assert all("p.a" in circle and "p.b" in circle for circle in found)
