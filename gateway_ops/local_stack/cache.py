"""The user's cache folder, and folders in it that are made once and completely."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MANIFEST: Final = "export.json"
_WEIGHTS: Final = ".safetensors"  # compared by size: to hash them would take a second at each start


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the cache folder of this project; it need not exist yet.

    ``GATEWAY_CACHE_DIR``, else ``$XDG_CACHE_HOME/triton-openai-gateway``, else ``~/.cache/triton-openai-gateway``.

    Args:
        environ: the environment to read, by default that of the process.
    """
    environ = os.environ if environ is None else environ
    own = environ.get("GATEWAY_CACHE_DIR", "")
    if own:
        return Path(own).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "triton-openai-gateway"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; waits for it, and the kernel frees it when the holder dies.

    Args:
        path: the lock file, made when missing and left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, recipe: str, make: Callable[[Path], None]) -> Path:
    """Return ``folder``, making it first when it is missing, damaged, or of another recipe.

    The folder is made under another name and renamed, so that half of it is never seen; of two simultaneous
    processes only one makes it. A folder that is whole is only checked: weights by size, other files by SHA-256.

    Args:
        folder: the folder wanted.
        recipe: the folder's ingredients and format; with another recipe the folder is made anew.
        make: fills an empty folder; what it raises is passed on and leaves nothing behind.
    """
    if _is_whole(folder, recipe):
        return folder
    with locked(folder.parent / f".{folder.name}.lock"):
        if _is_whole(folder, recipe):  # another process made it while this one waited
            return folder
        # This process has the lock, so a process that died has left these folders.
        for leftover in folder.parent.glob(f".{folder.name}.new-*"):
            shutil.rmtree(leftover)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.new-", dir=folder.parent))
        try:
            make(fresh)
            _write_manifest(fresh, recipe)
            fresh.chmod(0o755)
            if folder.exists():
                shutil.rmtree(folder)
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)


def _fingerprint(path: Path) -> str:
    if path.suffix == _WEIGHTS:
        return f"size:{path.stat().st_size}"
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _write_manifest(folder: Path, recipe: str) -> None:
    files = {str(path.relative_to(folder)): _fingerprint(path) for path in _files(folder)}
    (folder / _MANIFEST).write_text(json.dumps({"recipe": recipe, "files": files}, indent=2) + "\n", encoding="utf-8")


def _is_whole(folder: Path, recipe: str) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        files = manifest["files"]
        return manifest["recipe"] == recipe and all(_fingerprint(folder / name) == mark for name, mark in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
