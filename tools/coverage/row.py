"""One row: a feature of TensorRT-LLM's backend, its place here, and the test that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["served", "relayed", "rendered", "rejected", "documented", "missing"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the page.

    Attributes:
        name: upstream's name of the option, tensor, mode or client argument.
        where: its place here in a few words, or the reason for its absence.
        test: ``file::function`` below ``tests/``; empty only where there is nothing to test.
        status: ``served``: it works here, in the real Triton or in this project's engines. ``rendered``: it is written
            into configurations or scripts, and only TensorRT-LLM itself can do it. ``rejected``: an error names it.
            ``relayed``: passed on as it comes; nothing of this project makes it, and what makes it was not run.
            ``documented``: nothing here does it, and the row says what to do instead. ``missing``: not there yet.
    """

    name: str
    where: str
    test: str = ""
    status: Status = "served"


def served(test: str, where: str) -> tuple[str, str, Status]:
    """Make an entry that works here, with its test."""
    return where, test, "served"


def rejected(test: str, where: str) -> tuple[str, str, Status]:
    """Make an entry that is rejected by name, with its test."""
    return where, test, "rejected"


def rendered(test: str, where: str) -> tuple[str, str, Status]:
    """Make an entry that is written into configurations or scripts, with its test."""
    return where, test, "rendered"


def missing(where: str) -> tuple[str, str, Status]:
    """Make an entry that is not there yet."""
    return where, "", "missing"


def documented(where: str) -> tuple[str, str, Status]:
    """Make an entry that only the page explains."""
    return where, "", "documented"


Entry = tuple[str, str, Status]
