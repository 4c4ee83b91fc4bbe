"""Facts in a server's configuration beyond its tensors: tokenizer folder, context length, harmful settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.triton.model_view import ModelView
from gateway.triton.versions import has_change

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SPECULATIVE = ("medusa", "redrafter", "lookahead", "eagle")  # such an engine always decodes in this mode


def parameter(model: ModelView | None, name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Read a parameter of a model's configuration.

    ``${NAME}`` is filled from ``environ``: an embedded Triton shares its environment with the gateway. A value with
    an unset variable counts as unfilled (wire contract 9.2, row 0.3).

    Returns:
        The value, or None when it is absent, empty or unfilled.
    """
    if model is None:
        return None
    value = model.parameters.get(name, "").strip()
    if any(not environ.get(variable) for variable in _VARIABLE.findall(value)):
        return None
    return _VARIABLE.sub(lambda match: environ[match[1]], value).strip() or None


def tokenizer_dir(engine: ModelView | None, preprocessing: ModelView | None) -> str | None:
    """The tokenizer folder in the configuration, which may be on another machine."""
    return parameter(preprocessing, "tokenizer_dir") or parameter(engine, "tokenizer_dir")


def max_seq_len(engine: ModelView | None) -> int | None:
    """The most tokens of prompt and answer in an engine, where the server reports them.

    Read from the parameter ``max_seq_len``, else from the engine's own ``config.json`` where its folder can be read
    here. Only this project's engines, known by their parameter ``engine``, take ``max_position_embeddings`` for it.
    """
    return _declared(engine, "max_seq_len", "build_config", "max_position_embeddings")


def vocab_size(engine: ModelView | None) -> int | None:
    """The width of an engine's logits without padding, where the server reports it.

    Read from the parameter ``vocab_size``, else from the engine's own ``config.json`` where its folder can be read
    here: that of a built engine under ``pretrained_config``, that of this project's engines at the top.
    """
    return _declared(engine, "vocab_size", "pretrained_config", "vocab_size")


def _declared(engine: ModelView | None, name: str, section: str, of_model: str) -> int | None:
    """A parameter, else that key in a section of a built engine's ``config.json``, else a key of a model's."""
    declared = number(engine, name)
    if engine is None or declared is not None:
        return declared
    folder = parameter(engine, "gpt_model_path")
    config = _read_json(Path(folder) / "config.json") if folder else {}
    built = config.get(section)
    if isinstance(built, dict):
        return _positive(built.get(name))
    return _positive(config.get(of_model)) if "engine" in engine.parameters else None


def number(model: ModelView | None, name: str) -> int | None:
    """Read a parameter as a whole number above 0; None without one."""
    return _positive(parameter(model, name))


def adds_special_tokens(preprocessing: ModelView | None) -> bool:
    """Tell whether preprocessing adds BOS, which is its default (wire contract 1.4)."""
    value = parameter(preprocessing, "add_special_tokens")
    return value is None or value.lower() not in ("false", "0", "no", "f", "n", "off")


FALSE_WORDS = ("False", "false", "FALSE", "0")
"""Values that TensorRT-LLM's backend reads as false; it replaces an unreadable value by the default."""


def normalizes_log_probs(engine: ModelView | None, version: tuple[int, ...] | None = None) -> bool:
    """Tell whether an engine's log-probs are relative to the candidates of sampling (wire contract 2.5).

    This project's Python engines but the reference engine have the model's own. ``version``: of TensorRT-LLM, which
    decides on the default; None where it is not known.
    """
    value = parameter(engine, "normalize_log_probs")
    if value is None:
        own = parameter(engine, "engine") in ("llmapi", "transformers")
        return not own and not has_change(version, "own_log_probs")
    return value not in FALSE_WORDS


def warnings(engine: ModelView | None) -> tuple[str, ...]:
    """Warn of settings of an engine that make answers worse, a sentence each (wire contract 2.1 and 2.5)."""
    mode = parameter(engine, "decoding_mode")
    if mode is None or mode in ("auto", "top_k_top_p", *_SPECULATIVE):
        return ()
    return (f"decoding_mode is {mode!r}: requests with top_p may return empty answers; do not set decoding_mode",)


def _positive(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if number > 0 else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
