"""Where a program works in a test: a folder with a file, a scratch home, a recorder before the gateway."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.programs.process import Outcome, run
from tests.clients.programs.recorder import Recorder
from tests.scripted_engine.replay import ScriptedServer, turn

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


def play_looks_and_an_edit(triton: ScriptedServer, looks: list[str], edit: str, edited: str) -> None:
    """Have the model look twice at once, edit, and say so, thinking before each.

    Args:
        triton: plays the model.
        looks: calls, one of which gives the text of `NOTES`.
        edit: a call.
        edited: how its result tells that it took place.
    """
    triton.play(
        turn(text=thought("First a look.") + "I look.\n" + "\n".join(looks) + "<|im_end|>"),
        turn("<tool_response>.*Hello, Paris", text=f"{thought('Now the edit.')}{edit}<|im_end|>"),
        turn(edited, text="It is Rome now.<|im_end|>"),
        chunk=[1, 7],
    )


def thought(text: str) -> str:
    """Reasoning as the model writes it."""
    return f"<think>\n{text}\n</think>\n\n"
