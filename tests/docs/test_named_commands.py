"""Commands of ``gateway`` that the pages show: each command is there, and has the options that are given to it."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from gateway_ops.cli.root import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"(?ms)^ *```sh\n(.*?)^ *```$|((?:^    [^\n]*\n)+)")
_COMMAND = re.compile(r"\s*(?:\$ |\.venv/bin/|(?:GATEWAY_\w+=\S+ )+)?gateway ((?:[a-z-]+|--?\w).*)$")
# What stands behind a command: another one, its output, a remark; what may be left out is in brackets.
_REST = re.compile(r"\s[|>#]|\s{3,}\S|\]\s")


def shown(page: Path) -> Iterator[list[str]]:
    """The words behind ``gateway`` in each command that blocks of a page have."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in "".join(block).replace("\\\n", " ").splitlines():
            if found := _COMMAND.match(line):
                yield shlex.split(_REST.split(found[1])[0].replace("[", ""))


@functools.cache
def root() -> Any:
    return get_command(app)


def wrong(words: list[str]) -> str:
    """What of a command is not there, empty where all of it is."""
    command = root()
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            return f"no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
    given = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    lost = [word for word in given if re.fullmatch(r"--?[a-z][\w-]*", word) and word not in options]
    return f"{command.name} has no {', '.join(lost)}" if lost else ""


def test_each_command_is_there_with_its_options() -> None:
    found = [(page.name, words) for page in PAGES for words in shown(page)]
    assert [(page, words, wrong(words)) for page, words in found if wrong(words)] == []
    assert len(found) > 60


def test_what_is_not_there_is_found() -> None:
    assert wrong(["bench", "http://a", "--rate", "2", "--no-such"]) == "bench has no --no-such"
    assert wrong(["engine", "bild"]) == "no command bild"
    assert wrong(["chat", "-m", "-"]) == ""
