"""``gateway examples``: shipped examples as files to edit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import gateway_ops
from gateway_ops.cli.console import fail

# In a checkout links to the folder and the files of those names.
_FOLDER = Path(gateway_ops.__file__).parent
_EXAMPLES = _FOLDER / "examples"
_SETTINGS = ("gateway.minimal.yaml", "gateway.example.yaml")


def examples(
    folder: Annotated[Path | None, typer.Argument(help="Folder to write them to; listed when not given.")] = None,
) -> None:
    """List the examples that come with the gateway, or write them to a folder; nothing there is replaced."""
    found = _files()
    if folder is None:
        typer.echo("\n".join(str(name) for name in found))
        return
    taken = [name for name in found if (folder / name).exists()]
    if taken:
        raise fail(f"{folder / taken[0]} exists already, and nothing was written: name another folder.")
    try:
        for name, source in found.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
    except OSError as error:
        raise fail(f"cannot write to {folder}: {error.strerror}") from None
    typer.echo(f"{folder}: {len(found)} files")


def _files() -> dict[Path, Path]:
    """Each example's file, by its path in a folder of examples; settings files first."""
    every = (path for path in sorted(_EXAMPLES.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {
        **{Path(name): _FOLDER / name for name in _SETTINGS},
        **{path.relative_to(_EXAMPLES): path for path in every},
    }
