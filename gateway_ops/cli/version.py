"""``gateway --version``: shows the versions of the gateway, of Python and of packages."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from typing import Any

import typer

from gateway import DISTRIBUTION
from gateway_ops.cli.console import echo_json

_REQUIREMENT = re.compile(r"""([\w.-]+).*?(?:extra == ["'](\w+)["'])?$""")
_NOT_RUN = ("dev",)  # extras that no gateway imports


def show_versions(*, as_json: bool) -> None:
    """Print them: one JSON object, or a line each, with - for what is not installed."""
    found = versions()
    if as_json:
        echo_json(found)
        return
    packages = found.pop("packages")
    for name, value in {**found, **packages}.items():
        typer.echo(f"{name} {value or '-'}")


def gateway_version() -> str:
    """The version of the installed distribution, as in its metadata."""
    return importlib.metadata.version(DISTRIBUTION)


def versions() -> dict[str, Any]:
    """The versions of the gateway, Python, the system and used packages by name; None where not installed."""
    named = filter(None, map(_REQUIREMENT.match, importlib.metadata.requires(DISTRIBUTION) or ()))
    packages = sorted({each[1] for each in named if each[2] not in _NOT_RUN}, key=str.lower)
    return {
        "gateway": gateway_version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: _installed(name) for name in packages},
    }


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
