"""The requirements of the package's extras, by its metadata."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from typing import Final

from gateway import DISTRIBUTION

_OF_EXTRA: Final = re.compile(r"""(?P<requirement>[^;]+); extra == ["'](?P<extra>\w+)["']""")


def pip_install(extra: str) -> str:
    """Write the pip command that installs the requirements of an extra.

    The command names the requirements, not the gateway: the gateway is on no index, and its name is free there.

    Args:
        extra: its name in pyproject.toml.
    """
    try:
        listed = importlib.metadata.requires(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:  # a checkout that is on the path and not installed
        return f"pip install '.[{extra}]'"
    found = filter(None, map(_OF_EXTRA.fullmatch, listed))
    return shlex.join(["pip", "install", *(each["requirement"] for each in found if each["extra"] == extra)])
