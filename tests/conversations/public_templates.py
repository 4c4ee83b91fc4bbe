"""Chat templates of the makers of models, which llama.cpp collects: from its source archive, never from here."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from gateway_ops.local_stack.cache import cache_dir, locked

_ARCHIVE = "llama-cpp-python==0.3.36"
_FOLDER = "/models/templates/"
NEED_MORE = frozenset({"fireworks-ai-llama-3-firefunction-v2", "llama-cpp-deepseek-r1"})
"""They read names that no API has, or fail on each list of tools."""


@functools.cache
def public_templates() -> dict[str, str]:
    """Sources by name; the test is skipped where the archive cannot be had."""
    folder = cache_dir() / f"public-templates-{_ARCHIVE.rpartition('=')[2]}"
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _download(Path(made))
                os.replace(Path(made) / "whole", folder)  # noqa: PTH105 - half of it is never seen
    return {path.stem: path.read_text() for path in sorted(folder.iterdir()) if path.stem not in NEED_MORE}


def _download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", _ARCHIVE]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"the archive of public templates cannot be had: {done.stderr[-300:]}")
    (folder / "whole").mkdir()
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        for member in files:
            content = files.extractfile(member) if _FOLDER in member.name and member.isfile() else None
            if content is not None and member.name.endswith(".jinja"):
                (folder / "whole" / Path(member.name).name).write_bytes(content.read())
