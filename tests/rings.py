"""What ``make test`` takes of what ``make test-long`` runs as a whole."""

from __future__ import annotations


class _Run:
    """The run that this process is part of; `tests.conftest` tells which one it is before tests are imported."""

    short = False


def begin(*, short: bool) -> None:
    """Say whether the tests that are marked as long are left out."""
    _Run.short = short


def examples(count: int) -> int:
    """How many examples a property test takes of ``count``: a third in a short run, and no fewer than one."""
    return -(-count // 3) if _Run.short else count
