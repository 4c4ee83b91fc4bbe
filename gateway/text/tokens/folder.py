"""Reads a Hugging Face style tokenizer folder except its vocabulary: special tokens, end ids, templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

TOKENIZER_FILE: Final = "tokenizer.json"
# The keys of tokenizer_config.json and special_tokens_map.json that hold one special token.
NAMED_TOKENS: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "image_token",
    "audio_token",
    "video_token",
)


class TokenizerError(Exception):
    """An unusable tokenizer folder or text; the message is one sentence with the file and the key."""


@dataclass(frozen=True, slots=True)
class FolderMetadata:
    """Settings read from the side files of a tokenizer folder; every file is optional.

    Attributes:
        special_tokens: text of each named special token, for example ``{"bos_token": "<s>"}``.
        bos_id: ``bos_token_id`` of generation_config.json or config.json.
        eos_ids: all of ``eos_token_id`` of generation_config.json, else of config.json; empty when neither has it.
        chat_template: the default template, None when the folder has none.
        named_templates: templates by name, ``default`` among them when the folder names it.
        max_position_embeddings: of config.json (or its ``text_config``); None when absent.
        vocab_size: of config.json (or its ``text_config``): the width of the logits, which may be above the tokenizer's
            vocabulary; None when absent.
        tokenizer_class: of tokenizer_config.json; None when absent.
        architectures: of config.json; empty when absent.
        model_type: of config.json; None when absent.
    """

    special_tokens: Mapping[str, str] = field(default_factory=dict)
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    named_templates: Mapping[str, str] = field(default_factory=dict)
    max_position_embeddings: int | None = None
    vocab_size: int | None = None
    tokenizer_class: str | None = None
    architectures: tuple[str, ...] = ()
    model_type: str | None = None


def read_folder(folder: Path) -> FolderMetadata:
    """Read the side files of ``folder``.

    Raises:
        TokenizerError: when a file that exists cannot be read or a key in it has the wrong type.
    """
    tokenizer_config = _read_object(folder / "tokenizer_config.json")
    token_map = _read_object(folder / "special_tokens_map.json")
    config = _read_object(folder / "config.json")
    generation = _read_object(folder / "generation_config.json")
    default, named = _templates(folder, tokenizer_config)
    eos_ids = _ids(generation, "eos_token_id", folder / "generation_config.json")
    if not eos_ids:
        eos_ids = _config_ids(config, "eos_token_id", folder)
    bos_ids = _ids(generation, "bos_token_id", folder / "generation_config.json")
    if not bos_ids:
        bos_ids = _config_ids(config, "bos_token_id", folder)
    return FolderMetadata(
        special_tokens=_special_tokens(folder, token_map, tokenizer_config),
        bos_id=bos_ids[0] if bos_ids else None,
        eos_ids=eos_ids,
        chat_template=default,
        named_templates=named,
        max_position_embeddings=_size(config, "max_position_embeddings", folder / "config.json"),
        vocab_size=_size(config, "vocab_size", folder / "config.json"),
        tokenizer_class=_class_name(folder, tokenizer_config),
        architectures=_architectures(config),
        model_type=model_type if isinstance(model_type := config.get("model_type"), str) else None,
    )


def _architectures(config: dict[str, Any]) -> tuple[str, ...]:
    given = config.get("architectures")
    return tuple(name for name in given if isinstance(name, str)) if isinstance(given, list) else ()


def _class_name(folder: Path, tokenizer_config: dict[str, Any]) -> str | None:
    value = tokenizer_config.get("tokenizer_class")
    if value is not None and not isinstance(value, str):
        raise TokenizerError(f"{folder / 'tokenizer_config.json'}: `tokenizer_class` must be a string.")
    return value


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; empty when the file does not exist."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} must contain a JSON object.")
    return value


def _special_tokens(folder: Path, token_map: dict[str, Any], tokenizer_config: dict[str, Any]) -> dict[str, str]:
    """Texts of the named special tokens; tokenizer_config.json overrides special_tokens_map.json."""
    tokens: dict[str, str] = {}
    for file, source in (("special_tokens_map.json", token_map), ("tokenizer_config.json", tokenizer_config)):
        for key in NAMED_TOKENS:
            value = source.get(key)
            if isinstance(value, dict):  # a serialised AddedToken
                value = value.get("content")
            if value is None:
                continue
            if not isinstance(value, str):
                raise TokenizerError(f"{folder / file}: `{key}` must be a string or an object with `content`.")
            tokens[key] = value
    return tokens


def _ids(source: dict[str, Any], key: str, path: Path) -> tuple[int, ...]:
    """An id or a list of ids, without repeats, in order."""
    value = source.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    if not all(type(item) is int for item in values):
        raise TokenizerError(f"{path}: `{key}` must be an integer or a list of integers.")
    return tuple(dict.fromkeys(item for item in values if item >= 0))


def _config_ids(config: dict[str, Any], key: str, folder: Path) -> tuple[int, ...]:
    """As ``_ids``, of config.json or of the language part that a multimodal config.json nests."""
    return _ids(config, key, folder / "config.json") or _ids(_text_config(config), key, folder / "config.json")


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else {}


def _size(config: dict[str, Any], key: str, path: Path) -> int | None:
    value = config.get(key, _text_config(config).get(key))
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise TokenizerError(f"{path}: `{key}` must be a positive integer.")
    return value


def _templates(folder: Path, tokenizer_config: dict[str, Any]) -> tuple[str | None, dict[str, str]]:
    """The default chat template and all named ones; files win over tokenizer_config.json."""
    named: dict[str, str] = {}
    configured = tokenizer_config.get("chat_template")
    if isinstance(configured, str):
        named["default"] = configured
    elif isinstance(configured, list):
        for item in configured:
            if not (
                isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("template"), str)
            ):
                where = folder / "tokenizer_config.json"
                raise TokenizerError(f"{where}: each entry of `chat_template` needs the strings `name` and `template`.")
            named[item["name"]] = item["template"]
    elif configured is not None:
        raise TokenizerError(f"{folder / 'tokenizer_config.json'}: `chat_template` must be a string or a list.")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        named[path.stem] = _read_text(path)
    path = folder / "chat_template.jinja"
    if path.is_file():
        named["default"] = _read_text(path)
    processors = _read_object(folder / "chat_template.json").get("chat_template")  # of models that see or hear
    if isinstance(processors, str):
        named.setdefault("default", processors)
    return named.get("default"), named


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path} cannot be read as UTF-8 text: {error}") from error
