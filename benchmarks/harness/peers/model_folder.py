"""The model folder for gateways that tokenize: the benchmark's tokenizer and template, and no weights."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.harness.subjects import tokenizer_folder

from .environments import FOLDER

NAME = "bench"
_CONTEXT = 131072
_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def model_folder() -> Path:
    """Make it: links to the files of the tokenizer, and a configuration whose context takes the long prompts."""
    source, folder = tokenizer_folder(), FOLDER / NAME
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
        if (source / name).exists():
            (folder / name).symlink_to(source / name)
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": _CONTEXT}))
    return folder
