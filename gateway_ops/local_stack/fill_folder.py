"""``python -m gateway_ops.local_stack.fill_folder FOLDER``: writes SmolLM2-135M-Instruct into an empty folder."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.smollm2 import write_model

_LAST = "config.json"  # is written last: a folder without it is incomplete


def fill_folder(folder: Path, write: Callable[[Path], None] = write_model) -> bool:
    """Write the model into a folder without a model.

    Args:
        folder: exists and, where it has no config.json, can be written.
        write: writes a model into the empty folder it gets.

    Returns:
        False when the folder has a model already and was left as it is.

    Raises:
        LocalStackError: the model cannot be fetched, or the folder is missing or cannot be written.
    """
    if (folder / _LAST).is_file():
        return False
    try:
        # Inside the folder: a volume is often another file system than the one for temporary files.
        with tempfile.TemporaryDirectory(prefix=".filling-", dir=folder) as fresh:
            write(Path(fresh))
            for file in sorted(Path(fresh).iterdir(), key=lambda file: file.name == _LAST):
                shutil.move(file, folder / file.name)
    except OSError as error:
        raise LocalStackError(f"Cannot write a model into {folder} ({error.strerror or error}).") from error
    return True


if __name__ == "__main__":
    try:
        fill_folder(Path(sys.argv[1]))
    except LocalStackError as failure:
        sys.exit(str(failure))
