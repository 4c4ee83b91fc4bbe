"""Writes docs/reference/cli.md from the commands themselves.

Run ``python -m tools.cli_page [FILE]`` in the root of the repository (part of ``make docs``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args

from typer.main import get_command

from gateway_ops.cli.root import app

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
_HEAD: Final = """\
# Command line

<!-- Written by `python -m tools.cli_page`: change the commands in gateway_ops/cli/ instead. -->

For everyone who uses the command `gateway`: each command with its arguments and options, as `gateway COMMAND --help`
prints them. Defaults are in parentheses. How the commands are used is in the guides that they link to.
"""
# The guide of a command: its title and its place.
_GUIDES: Final = {
    "gateway up": ("A first answer", "../tutorials/first-answer.md"),
    "gateway serve": ("Before your own Triton", "../tutorials/your-own-triton.md"),
    "gateway launch": ("Launch", "../how-to/launch.md"),
    "gateway check": ("Check", "configuration.md#check"),
    "gateway chat": ("Talk to a model", "../how-to/page.md#talk-to-a-model"),
    "gateway models": ("What a server serves", "../how-to/page.md#what-a-server-serves"),
    "gateway top": ("Watch a gateway", "../how-to/page.md#watch-a-gateway"),
    "gateway report": ("Report a fault", "../how-to/page.md#report-a-fault"),
    "gateway bench": ("Load test", "../how-to/fleet-sizing.md#load-test"),
    "gateway plan-fleet": ("Sizing a fleet", "../how-to/fleet-sizing.md"),
    "gateway compare": ("Comparing two models or servers", "../how-to/migration.md#compare-two-models-or-servers"),
    "gateway engine": ("Engines", "../how-to/deployments.md#engines"),
    "gateway repo": ("Deployments", "../how-to/deployments.md"),
    "gateway key": ("Keys and limits", "../how-to/keys.md"),
    "gateway record": ("Record and replay", "../how-to/troubleshooting.md#record-and-replay"),
    "gateway replay": ("Record and replay", "../how-to/troubleshooting.md#record-and-replay"),
}


def render() -> str:
    """The page."""
    sections = (line for name, command in _commands(get_command(app)) for line in _section(name, command))
    return "\n".join([_HEAD, *sections])


def _commands(group: Any, prefix: str = "gateway") -> Iterator[tuple[str, Any]]:
    """Commands with their whole names; a group comes before its commands."""
    for name, command in group.commands.items():
        yield f"{prefix} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"{'#' * len(name.split())} {name}\n"
    yield re.sub(r"\s*\n\s*", " ", command.help.strip()) + "\n"
    if name in _GUIDES:
        title, target = _GUIDES[name]
        yield f"Guide: [{title}]({target}).\n"
    yield from _options(command)


def _options(command: Any) -> Iterator[str]:
    """An item of a list for each argument and option: their texts are too long for a table."""
    items = [_item(each) for each in command.params if each.name != "help"]
    if items:
        yield from (*items, "")


def _item(parameter: Any) -> str:
    argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if argument else parameter.opts + parameter.secondary_opts
    texts = [parameter.help or ""]
    if choices := _choices(parameter.type_descriptor.annotation):
        texts.append(f"One of {', '.join(f'`{each}`' for each in choices)}.")
    if parameter.envvar:
        texts.append(f"Variable: `{parameter.envvar}`.")
    return f"- {', '.join(f'`{name}`' for name in names)}{_default(parameter)}: {' '.join(texts).strip()}"


def _choices(annotation: Any) -> list[str]:
    """The values of a choice, alone or in a list or union."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, Enum):
            return [str(member.value) for member in each]
    return []


def _default(parameter: Any) -> str:
    if parameter.required:
        return " (required)"
    value = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if value is None or value is False or value in ("", (), []) or callable(value):
        return ""
    return f" (`{value:g}`)" if isinstance(value, float) else f" (`{value}`)"


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(render(), encoding="utf-8")
