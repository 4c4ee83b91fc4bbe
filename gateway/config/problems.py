"""Mistakes in settings, each with its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the settings.

    Attributes:
        what: one sentence, which begins with the path of the key where there is one.
        fix: what to do about it, one sentence; empty where the mistake says it all.
        line: where it stands in the file, from 1; None for what comes from the environment.
    """

    what: str
    fix: str = ""
    line: int | None = None


class ConfigError(Exception):
    """Settings that cannot be used; the message has one line for each problem, with its key path.

    Attributes:
        problems: all that were found.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        """Make one of a message, or of problems and where they are.

        Args:
            message: one sentence, which is the only problem unless ``problems`` are given.
            problems: what was found.
        """
        super().__init__(message)
        self.problems = tuple(problems) or (Problem(message),)

    @staticmethod
    def of(problems: Sequence[Problem], file: object = None) -> ConfigError:
        """One error of all problems; ``file`` is named before those that have a line."""
        lines = []
        for problem in problems:
            where = f"{file}:{problem.line}: " if file is not None and problem.line is not None else ""
            lines.append(f"{where}{problem.what} {problem.fix}".strip())
        return ConfigError("\n".join(lines), problems)
