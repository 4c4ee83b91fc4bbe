"""Values for what requests leave out: the operator's, then the model's own where the operator wants them."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from gateway.config import ConfigError
from gateway.config.model_settings import SamplingDefaults

_FROM_MODEL = ("temperature", "top_p", "top_k", "repetition_penalty")


def sampling_defaults(own: SamplingDefaults, folder: Path, key: str) -> SamplingDefaults:
    """The operator's defaults, filled up from ``generation_config.json`` where ``own.generation_config`` says so.

    Args:
        own: of the settings.
        folder: of the tokenizer.
        key: where the model stands in the settings, for messages.

    Raises:
        ConfigError: when the file is wanted and cannot be used.
    """
    path = folder / "generation_config.json"
    if not own.generation_config or not path.is_file():
        return own
    try:
        found = json.loads(path.read_bytes())
        found = found if isinstance(found, dict) else {}
        if found.get("do_sample") is False:
            found["temperature"] = 0.0
        given = {name: found[name] for name in _FROM_MODEL if found.get(name) is not None}
        return SamplingDefaults.model_validate(given | own.model_dump(exclude_none=True))
    except (OSError, ValueError) as error:
        detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigError(f"{key}.defaults.generation_config: {path} cannot be used: {detail}.") from None
