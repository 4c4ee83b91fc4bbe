"""Reads the models of a repository in a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from gateway_ops.repository.difference import unfilled_settings
from gateway_ops.repository.pbtxt import from_text
from gateway_ops.repository.template_variables import BY_NAME

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
# Two stand-ins for a placeholder, by the variable's kind: fields that differ between them are unfilled.
_STAND_INS = {"flag": ("false", "true"), "datatype": ("TYPE_FP32", "TYPE_FP16"), "number": ("1", "0")}


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An unfilled value ``${name}``.

    Attributes:
        name: the variable.
        line: its line in the file, from 1.
        quoted: whether it is text, which Triton accepts, and not part of the configuration's grammar.
    """

    name: str
    line: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One model of a repository.

    Attributes:
        path: its folder.
        config: its ModelConfig; None without one that parses.
        error: why it does not parse, with the line in front; empty when it does.
        placeholders: unfilled values.
        versions: names of its version folders.
        lines: the text of its configuration.
        unfilled: fields of its configuration, and tensors, with a placeholder.
        unfilled_settings: the same in the words of `gateway_ops.repository.difference`.
    """

    path: Path
    config: Any
    error: str
    placeholders: tuple[Placeholder, ...]
    versions: tuple[str, ...]
    lines: tuple[str, ...] = ()
    unfilled: frozenset[str] = frozenset()
    unfilled_settings: frozenset[str] = frozenset()

    @property
    def file(self) -> Path:
        """The ``config.pbtxt``."""
        return self.path / "config.pbtxt"

    def line_of(self, text: str) -> int | None:
        """The first line of the configuration with a text."""
        return next((number for number, line in enumerate(self.lines, 1) if text in line), None)


def read_repository(folder: Path) -> dict[str, ModelFolder]:
    """Read every model of a repository by its folder's name.

    Raises:
        OSError: the folder cannot be read.
    """
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))
    return {path.name: _read_model(path) for path in found}


def _read_model(path: Path) -> ModelFolder:
    versions = tuple(sorted(each.name for each in path.iterdir() if each.is_dir()))
    file = path / "config.pbtxt"
    if not file.is_file():
        return ModelFolder(path, None, "", (), versions)
    text = file.read_text(encoding="utf-8", errors="replace")
    placeholders, lines = tuple(_placeholders(text)), tuple(text.splitlines())
    if not any(_code(line).strip() for line in lines):
        return ModelFolder(path, None, "1:1 : the file is empty", placeholders, versions, lines)
    try:
        # A placeholder must not hide the rest: outside quotes a stand-in takes its place.
        one, two = (_with_stand_ins(text, which) for which in (0, 1))
        config = from_text(one)
        other = config if one == two else from_text(two)
    except text_format.ParseError as error:
        return ModelFolder(path, None, str(error), placeholders, versions, lines)
    if other is config:
        return ModelFolder(path, config, "", placeholders, versions, lines)
    unfilled, settings = frozenset(_differing(config, other)), unfilled_settings(config, other)
    return ModelFolder(path, config, "", placeholders, versions, lines, unfilled, settings)


def _differing(config: Any, other: Any) -> Iterator[str]:
    """Yield fields, and names of inputs and outputs, that differ between the stand-ins."""
    for field in config.DESCRIPTOR.fields_by_name:
        one, two = getattr(config, field), getattr(other, field)
        if one != two:
            yield field
            if field in ("input", "output"):
                yield from (left.name for left, right in zip(one, two, strict=True) if left != right)


def _placeholders(text: str) -> Iterator[Placeholder]:
    for number, line in enumerate(text.splitlines(), 1):
        code = _code(line)
        for match in _PLACEHOLDER.finditer(code):
            yield Placeholder(match[1], number, quoted=code[: match.start()].count('"') % 2 == 1)


def _with_stand_ins(text: str, which: int) -> str:
    return "\n".join(_filled(_code(line), which) for line in text.splitlines())


def _filled(code: str, which: int) -> str:
    def replaced(match: re.Match[str]) -> str:
        return match[0] if code[: match.start()].count('"') % 2 else _STAND_INS[_kind_of(match[1])][which]

    return _PLACEHOLDER.sub(replaced, code)


def _code(line: str) -> str:
    """A line without its comment."""
    if "#" not in line:
        return line
    for index, character in enumerate(line):
        if character == "#" and line[:index].count('"') % 2 == 0:
            return line[:index]
    return line


def _kind_of(name: str) -> str:
    if name == "decoupled_mode":
        return "flag"
    known = BY_NAME.get(name)
    is_type = name.endswith(("data_type", "datatype")) or (known is not None and "datatype" in known.key)
    return "datatype" if is_type else "number"
