"""The Python base image of the Dockerfiles, made from Debian's packages where the registry cannot be reached.

It has what the Dockerfiles use of the real one: the same Debian, Python of the same minor version with pip, venv and
the shared library. The machine's certificate bundle goes in, because a registry behind a re-signing proxy needs it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from docker_engine import Engine

NAME = "python:3.11-slim-bookworm"

_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,python3-pip,libpython3.11,ca-certificates"
_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_NOT_IN_SLIM = (
    "usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists",
    "var/log", "usr/lib/python3.11/EXTERNALLY-MANAGED",
)  # fmt: skip
_SETTINGS = ("ENV PIP_CERT=/" + _BUNDLE, "ENV LANG=C.UTF-8", 'CMD ["python3"]')
_FORMAT = 1  # raise it when this recipe changes


def ensure_base_image(engine: Engine, cache: Path) -> None:
    """Make sure that the engine has the base image: there already, pulled, or made here (a minute, cached)."""
    if engine.docker("image", "ls", "--quiet", NAME):
        return
    if not engine.ours and engine.docker("pull", "--quiet", NAME, check=False, timeout=300):
        return
    archive = _ensure_archive(cache)
    changes = [word for setting in _SETTINGS for word in ("--change", setting)]
    engine.docker("import", *changes, str(archive), NAME)


def _ensure_archive(cache: Path) -> Path:
    bundle = Path("/") / _BUNDLE
    recipe = repr((_FORMAT, _SUITE, _PACKAGES, _NOT_IN_SLIM, bundle.read_bytes() if bundle.exists() else b""))
    archive = cache / f"base-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.tar"
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory(prefix="base-", dir=cache) as folder:
        root = Path(folder) / "root"
        _run("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root))
        for name in _NOT_IN_SLIM:
            _remove(root / name)
        for name, target in (("python", "/usr/bin/python3"), ("python3", "/usr/bin/python3")):
            (root / "usr/local/bin" / name).symlink_to(target)
        if bundle.exists():
            shutil.copyfile(bundle, root / _BUNDLE)
        fresh = Path(folder) / "base.tar"
        # debootstrap leaves device nodes and mount points that an image does not want.
        skipped = [f"--exclude=./{name}/*" for name in ("dev", "proc", "sys")]
        _run("tar", "-C", str(root), *skipped, "-cf", str(fresh), ".")
        fresh.rename(archive)
    return archive


def _remove(path: Path) -> None:
    if path.is_dir():
        for child in path.iterdir():
            shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()
    else:
        path.unlink(missing_ok=True)


def _run(*command: str) -> None:
    result = subprocess.run(["nice", *command], capture_output=True, text=True, check=False, timeout=400)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {(result.stdout + result.stderr)[-2000:]}")
