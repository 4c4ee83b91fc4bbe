"""What ``make house`` counts stays at or below the held numbers."""

from __future__ import annotations

from pathlib import Path

from tools.house import HELD, HeldMeasures, javascript_lines


def test_no_held_number_has_grown() -> None:
    measures = HeldMeasures.count()
    assert measures.numbers().keys() == HELD.keys()
    growth = measures.growth()
    assert not growth, "\n".join(["raise a number of tools/house.py only for a new capability", *growth])


def test_lines_of_scripts_are_those_that_do_something(tmp_path: Path) -> None:
    script = tmp_path / "page.js"
    script.write_text('// What it is.\n\nconst a = "http://b"; // why\n  // more\n\tlet c;\n')
    assert javascript_lines(script) == 2
