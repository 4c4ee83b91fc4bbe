"""Findings: their type and their severity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """The severity of a finding."""

    ERROR = "error"  # cannot be served
    WARNING = "warning"  # works worse than expected, or could not be checked
    INFO = "info"


STARTS_WITHOUT = "The gateway starts without it, and serves the model once it is available."
"""The remedy for an unreachable Triton, which is not an error of settings although requests fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: a fact, its place, and the fix.

    Attributes:
        severity: its severity.
        where: file and line, or the endpoint and its model.
        what: one sentence.
        fix: one sentence; empty where nothing needs doing, or the fact suggests it.
    """

    severity: Severity
    where: str
    what: str
    fix: str = ""


def loss_findings(where: str, losses: Mapping[str, str]) -> Iterator[Finding]:
    """Make findings of what answers lose: a warning where a change cures it, else information.

    Args:
        where: place of the findings.
        losses: as of ``EngineFeatures.losses``.
    """
    for loss, cure in losses.items():
        yield Finding(Severity.WARNING if cure else Severity.INFO, where, sentence(loss), cure)


def doubt_findings(where: str, family: str | None, doubts: Mapping[str, str]) -> Iterator[Finding]:
    """Make findings of a model family that may be the wrong one.

    Args:
        where: place of the findings.
        family: name of the chosen family.
        doubts: as of ``Choice.doubts``.
    """
    for doubt, cure in doubts.items():
        yield Finding(Severity.WARNING, where, f"The model is treated as family {family}, but {doubt}.", cure)


def sentence(words: str) -> str:
    """Write a log line as a sentence; a name at its beginning keeps its letters."""
    return words if words.endswith(".") else f"{words}."
