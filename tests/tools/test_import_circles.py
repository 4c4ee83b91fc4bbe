"""Which circles of imports are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.import_circles import import_circles
from tools.source_modules import read_modules

OTHER = "from p import a\n\ndef two():\n    return a.ONE\n"


@pytest.mark.parametrize(
    ("imports", "other", "circles"),
    [
        ("from p.b import two", OTHER, 1),
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
