"""Runs pip for the Makefile with a line of progress on a terminal, before anything is installed."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

_PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")


def install(arguments: Sequence[str]) -> int:
    """Run ``pip install`` with progress.

    Args:
        arguments: arguments of ``pip install``, such as ``-r FILE``.

    Returns:
        pip's exit status.
    """
    if not sys.stderr.isatty():
        return subprocess.call([*_PIP, "--quiet", *arguments])  # noqa: S603 - the Makefile's own words
    wanted = sum(_packages_of(Path(file)) for flag, file in pairwise(arguments) if flag == "-r")
    fetched, doing, began = 0, "starting pip", time.monotonic()
    command = [*_PIP, "--progress-bar", "off", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as pip:  # noqa: S603 - as above
        for line in _lines(pip):
            fetched += line.startswith(("Collecting ", "Processing ", "Obtaining "))
            if line.startswith("Installing collected"):
                doing = "installing them"
            elif fetched and not doing.startswith("installing"):
                doing = f"fetching packages: {fetched} of at most {max(fetched, wanted)}"
            sys.stderr.write(f"\r\x1b[K  {time.monotonic() - began:.0f} s {doing}")
            sys.stderr.flush()
    sys.stderr.write("\r\x1b[K")
    return pip.returncode


def _packages_of(requirements: Path) -> int:
    return len(re.findall(r"^\w", requirements.read_text(encoding="utf-8"), re.MULTILINE))


def _lines(pip: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines of pip's output, and an empty line for each second without one."""
    if pip.stdout is None:
        return
    rest = b""
    while True:
        if not select.select([pip.stdout], [], [], 1)[0]:
            yield ""
            continue
        if not (said := os.read(pip.stdout.fileno(), 65536)):
            return
        *lines, rest = (rest + said).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))
