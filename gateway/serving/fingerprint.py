"""Fingerprints of served models: two differ where the model would come out different if it were made again."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config import ModelSettings
from gateway.serving.adapter_files import ADAPTER_FILES
from gateway.tokens import VOCABULARY_FILES

_TOKENIZER_FILES = (
    "tokenizer.json",
    *VOCABULARY_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "config.json",
    "chat_template.jinja",
    "chat_template.json",
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal for models that need not be made again.

    Attributes:
        settings: of the model.
        files: path, time and size of each file that it reads.
    """

    settings: ModelSettings
    files: tuple[tuple[str, int, int], ...]


def fingerprint(settings: ModelSettings) -> Fingerprint:
    """Take it now, with the files that the settings name; a tokenizer folder that Triton names is not looked at."""
    paths = [settings.template] if settings.template is not None else []
    paths += settings.prompt_tables.values()
    if settings.lora is not None and settings.lora.folder is not None:
        paths += [settings.lora.folder / name for name in ADAPTER_FILES]
    if settings.tokenizer is not None:
        paths += [settings.tokenizer / name for name in _TOKENIZER_FILES]
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return Fingerprint(settings, tuple(found))
