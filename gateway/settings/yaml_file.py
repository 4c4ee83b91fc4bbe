"""Reads a YAML file as plain values with the line of every key, and describes mistakes with their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Keys = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One mistake in the settings.

    Attributes:
        what: one sentence, which begins with the path of the key where there is one.
        fix: the fix in one sentence; empty where the mistake suggests it.
        line: line in the file, from 1; None where the value comes from the environment.
    """

    what: str
    fix: str = ""
    line: int | None = None


class ConfigError(Exception):
    """Settings that cannot be used; the message has one line for each problem, with its key path.

    Attributes:
        problems: all of them.
    """

    def __init__(self, message: str, problems: Sequence[SettingsProblem] = ()) -> None:
        """Make one of a message, or of problems and where they are.

        Args:
            message: one sentence, which is the only problem unless ``problems`` are given.
            problems: all of them.
        """
        super().__init__(message)
        self.problems = tuple(problems) or (SettingsProblem(message),)

    @staticmethod
    def of(problems: Sequence[SettingsProblem], file: object = None) -> ConfigError:
        """Make one error of all problems, with ``file`` before those that have a line."""
        lines = []
        for problem in problems:
            where = f"{file}:{problem.line}: " if file is not None and problem.line is not None else ""
            lines.append(f"{where}{problem.what} {problem.fix}".strip())
        return ConfigError("\n".join(lines), problems)


@dataclass(frozen=True, slots=True)
class SettingsDocument:
    """The content of a settings file.

    Attributes:
        data: the mapping.
        lines: the line, from 1, of each key path.
        problems: keys that are written twice in one mapping.
    """

    data: dict[str, Any] = field(default_factory=dict)
    lines: Mapping[Keys, int] = field(default_factory=dict)
    problems: tuple[SettingsProblem, ...] = ()

    def line(self, keys: Sequence[str | int]) -> int | None:
        """The line of a key, or of the nearest key above it; None for an unknown key."""
        for length in range(len(keys), 0, -1):
            if tuple(keys[:length]) in self.lines:
                return self.lines[tuple(keys[:length])]
        return None


def read_document(path: Path, what: str = "settings file") -> SettingsDocument:
    """Read a settings file.

    Args:
        path: path of the file.
        what: name of the file's kind, for messages.

    Raises:
        ConfigError: the file cannot be read, is not YAML or has no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: the {what} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the {what} is not UTF-8 (byte {error.start}).") from None
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:  # a character that YAML does not have
        raise ConfigError(f"{path}: the {what} is not valid YAML ({' '.join(str(error).split())}).") from None
    try:
        node = loader.get_single_node()
        walk = _Walk()
        if node is not None:
            walk.visit(node, ())
        data = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error, what) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a reader's error, an impossible date, deep nesting
        raise ConfigError(f"{path}: the {what} is not valid YAML ({' '.join(str(error).split())}).") from None
    finally:
        loader.dispose()
    if data is None:
        return SettingsDocument()
    if not isinstance(data, dict):
        raise ConfigError.of([SettingsProblem(f"the {what} must contain a mapping.", line=1)], path)
    return SettingsDocument(data, walk.lines, tuple(walk.problems))


class _Walk:
    """A walk over a node tree that collects lines and repeated keys, before merge keys are resolved."""

    def __init__(self) -> None:
        self.lines: dict[Keys, int] = {}
        self.problems: list[SettingsProblem] = []
        self._open: set[int] = set()  # an alias may point to a node that holds it

    def visit(self, node: yaml.Node, keys: Keys) -> None:
        if id(node) in self._open:
            raise ValueError("an alias contains itself")
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, keys)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                inner: Keys = (*keys, index)
                self.lines[inner] = item.start_mark.line + 1
                self.visit(item, inner)
        self._open.discard(id(node))

    def _visit_mapping(self, node: yaml.MappingNode, keys: Keys) -> None:
        seen: dict[str, int] = {}
        for key, value in node.value:
            name = str(key.value)
            inner: Keys = (*keys, name)
            line = key.start_mark.line + 1
            if name in seen and name != "<<":
                what = f"{dotted(inner)}: duplicate key, first used in line {seen[name]}."
                self.problems.append(SettingsProblem(what, "Remove one of the two.", line))
            seen.setdefault(name, line)
            if name == "<<":  # merged keys have their lines where they are defined, and give way to the mapping's own
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    before = dict(self.lines)
                    self.visit(merged, keys)
                    self.lines.update(before)
            else:
                self.lines[inner] = line
                self.visit(value, inner)


def _not_yaml(path: Path, error: yaml.MarkedYAMLError, what: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    problem = SettingsProblem(f"the {what} is not valid YAML ({reason}).", line=mark.line + 1 if mark else None)
    return ConfigError.of([problem], path)


def dotted(keys: Sequence[str | int]) -> str:
    """Write a key path for people, such as ``models[0].triton.url``."""
    path = ""
    for part in keys:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
