"""The programs themselves: packages of `package.json`, installed once into the user's cache by npm."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from gateway_ops.local_stack.cache import cache_dir, made_once

PACKAGES = Path(__file__).with_name("package.json")
# How npm calls a network that is not there, or lets nobody through.
_NO_NETWORK = re.compile(
    r"npm error code (ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|E(?:NET|HOST)UNREACH|E401|E403|E407)\b"
)


class UnavailableError(Exception):
    """The programs cannot be had here; the text says why."""


def binaries() -> Path:
    """The folder with the commands ``codex``, ``claude`` and ``opencode``.

    Raises:
        UnavailableError: Node or npm is missing, or npm reaches no registry.
        RuntimeError: npm fails for another reason.
    """
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            raise UnavailableError(f"{command} is not installed")
    folder = cache_dir() / "clients" / "programs"
    folder.parent.mkdir(parents=True, exist_ok=True)
    return made_once(folder, PACKAGES.read_text(encoding="utf-8"), _install) / "node_modules" / ".bin"


def _install(folder: Path) -> None:
    shutil.copy(PACKAGES, folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=900)
    if done.returncode == 0:
        return
    if _NO_NETWORK.search(done.stderr):
        raise UnavailableError(f"npm install reaches no registry: {done.stderr[-500:]}")
    raise RuntimeError(f"npm install failed:\n{done.stderr[-4000:]}")
