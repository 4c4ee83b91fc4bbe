"""One finding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How bad a finding is."""

    ERROR = "error"  # it cannot be served like this
    WARNING = "warning"  # it can, but not as well as one may expect, or it could not be looked at
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, where, and what to do.

    Attributes:
        severity: how bad it is.
        where: file and line, or the endpoint and its model.
        what: one sentence.
        fix: one sentence; empty where nothing needs doing, or the finding says it all.
    """

    severity: Severity
    where: str
    what: str
    fix: str = ""
