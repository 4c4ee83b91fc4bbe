"""Packages of npm that tests need, installed once into the user's cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from gateway_ops.local_stack.cache import cache_dir, locked

# How npm calls a network that is not there, or lets nobody through; before version 10.6 its errors began otherwise.
_NO_NETWORK = re.compile(
    r"^npm (?:error|ERR!) code (?:ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E(?:NET|HOST)UNREACH"
    r"|E40[137]|E5\d\d)\b",
    re.MULTILINE,
)


class UnavailableError(Exception):
    """The packages cannot be had here; the text says why."""


def installed(packages: Path) -> Path:
    """The folder ``node_modules`` with the packages of a ``package.json``, whose versions are exact.

    Raises:
        UnavailableError: Node or npm is missing, or npm reaches no registry.
        RuntimeError: npm fails for another reason.
    """
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            raise UnavailableError(f"{command} is not installed")
    content = packages.read_bytes()
    folder = cache_dir() / "npm" / hashlib.sha256(content).hexdigest()[:16]
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _install(Path(made) / "whole", content)
                os.replace(Path(made) / "whole", folder)  # noqa: PTH105 - half of it is never seen
    return folder / "node_modules"


def _install(folder: Path, packages: bytes) -> None:
    folder.mkdir()
    (folder / "package.json").write_bytes(packages)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier"]
    # Without a network npm's own take minutes.
    command += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=900)
    if done.returncode == 0:
        return
    if _NO_NETWORK.search(done.stderr):
        raise UnavailableError(f"npm install reaches no registry: {done.stderr[-500:]}")
    raise RuntimeError(f"npm install failed:\n{done.stderr[-4000:]}")
