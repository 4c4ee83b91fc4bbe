"""Where a program works in a test: a folder with a file, a scratch home, a recorder before the gateway."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.programs.process import Outcome, run
from tests.clients.programs.recorder import Recorder

NOTES = "notes.txt"
BEFORE, AFTER = "Hello, Paris\n", "Hello, Rome\n"


@dataclass(frozen=True)
class Desk:
    """All that one test has.

    Attributes:
        work: the folder in which the program runs; it holds `NOTES`, which says `BEFORE`.
        binaries: the folder of the programs.
    """

    home: Path
    work: Path
    recorder: Recorder
    binaries: Path

    def run(self, program: str, *arguments: str, **env: str) -> Outcome:
        """Run a program to its end."""
        command = [str(self.binaries / program), *arguments]
        return run(command, home=self.home, work=self.work, proxy=self.recorder.url, env=env)

    @property
    def notes(self) -> str:
        """What the file says now."""
        return (self.work / NOTES).read_text(encoding="utf-8")


def call(name: str, **arguments: Any) -> str:
    """A call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def thought(text: str) -> str:
    """Reasoning as the model writes it."""
    return f"<think>\n{text}\n</think>\n\n"
