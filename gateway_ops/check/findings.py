"""The type of a finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """The gravity of a finding."""

    ERROR = "error"  # it cannot be served like this
    WARNING = "warning"  # it works worse than expected, or could not be checked
    INFO = "info"


STARTS_WITHOUT = "The gateway starts without it, and serves the model once it is available."
"""The remedy for an unreachable Triton, which is not an error of settings although requests fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: a fact, its place, and the remedy.

    Attributes:
        severity: its gravity.
        where: file and line, or the endpoint and its model.
        what: one sentence.
        fix: one sentence; empty where nothing needs doing, or the fact suggests it.
    """

    severity: Severity
    where: str
    what: str
    fix: str = ""


def loss_findings(where: str, losses: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on what is lost of a model's answers: a warning where a change cures it, else information.

    Args:
        where: of the findings.
        losses: as of ``EngineFeatures.losses``.
    """
    for loss, cure in losses.items():
        yield Finding(Severity.WARNING if cure else Severity.INFO, where, sentence(loss), cure)


def doubt_findings(where: str, family: str | None, doubts: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on a family that may be the wrong one.

    Args:
        where: of the findings.
        family: the name of the one that was chosen.
        doubts: as of ``Choice.doubts``.
    """
    for doubt, cure in doubts.items():
        yield Finding(Severity.WARNING, where, f"The model is treated as family {family}, but {doubt}.", cure)


def sentence(words: str) -> str:
    """End the words of a log line with a full stop; a name at their beginning keeps its letters."""
    return words if words.endswith(".") else f"{words}."
