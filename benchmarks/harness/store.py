"""Results as JSON files, which tables and plots are made from."""

from __future__ import annotations

import json
from typing import Any

from .machine import describe
from .processes import BUILT

FOLDER = BUILT / "results"


def save(mode: str, command: str, values: dict[str, Any]) -> None:
    """Store the results of a mode with machine, versions and command."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"mode": mode, "about": describe(command), **values}, indent=1)
    (FOLDER / f"{mode}.json").write_text(text + "\n")


def load(mode: str) -> dict[str, Any] | None:
    """The last results of a mode; None when there are none."""
    file = FOLDER / f"{mode}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def modes() -> list[str]:
    """Modes that have results."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))
