"""The folder of the workers' metrics, and the removal of folders of killed processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "gateway-metrics-"
_NEW_S: Final = 60.0  # a folder that is younger may not be held yet


@contextlib.contextmanager
def metrics_folder() -> Iterator[Path]:
    """Make a temporary folder, which is removed at the end; abandoned ones are removed before."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        handle = hold(Path(name))
        try:
            yield Path(name)
        finally:
            os.close(handle)


def hold(folder: Path) -> int:
    """Lock a folder against removal while the returned descriptor is open or this process lives."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # held, another user's, or gone meanwhile
            if time.time() - folder.stat().st_mtime > _NEW_S:
                _remove(folder)


def _remove(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(handle)
