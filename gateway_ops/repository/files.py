"""The files of a rendering compared with those of a folder; configurations are compared by meaning elsewhere."""

from __future__ import annotations

from pathlib import Path

from gateway_ops.repository.rendering import Rendering


def file_differences(rendering: Rendering, folder: Path) -> list[str]:
    """Files of rendered models that a folder has otherwise, lacks, or has beside them; a line each."""
    lines = []
    for path, content in rendering.files.items():
        if len(path.parts) == 1 or path.name in ("config.pbtxt", ".gitkeep"):  # scripts are no part of a model
            continue
        if not (folder / path).is_file():
            lines.append(f"{path}: only rendered")
        elif (folder / path).read_bytes() != content:
            lines.append(f"{path}: differs")
    for name in rendering.configs:
        there = sorted(path.relative_to(folder) for path in (folder / name).rglob("*.py"))
        lines += [f"{path}: only there" for path in there if path not in rendering.files]
    return lines
