"""Tokenizer, chat template and context length of a served model, from settings or from what Triton says of itself."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path

from gateway.config import ConfigError, ModelSettings
from gateway.config.model import SamplingDefaults
from gateway.generation import EngineFeatures
from gateway.prompt import PromptBuilder, TemplateError, load_template
from gateway.serving.defaults import sampling_defaults
from gateway.tokens import Tokenizer, TokenizerError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelParts:
    """What turns messages into ids and back.

    Attributes:
        tokenizer: of the model.
        prompts: renders and tokenizes messages.
        max_seq_len: prompt plus generated tokens at most.
        end_ids: ids that end an answer, the engine's end_id first.
        end_texts: their texts.
        tokenizer_source: folder that the tokenizer came from.
        knows_developer: whether the template has a developer role; elsewhere such messages are system messages.
        defaults: for what requests leave out.
    """

    tokenizer: Tokenizer
    prompts: PromptBuilder
    max_seq_len: int
    end_ids: tuple[int, ...]
    end_texts: tuple[str, ...]
    tokenizer_source: Path
    knows_developer: bool
    defaults: SamplingDefaults


def needs_discovery(settings: ModelSettings) -> bool:
    """Whether the settings leave something to Triton's own configuration."""
    return settings.tokenizer is None or settings.max_seq_len is None


def load_parts(
    settings: ModelSettings, features: EngineFeatures | None, key: str, previous: ModelParts | None = None
) -> ModelParts:
    """Load everything a model needs besides its engine. Reads files; call it off the event loop.

    Args:
        settings: of the model.
        features: what was discovered; None while nothing was.
        key: where the model stands in the settings, for messages, such as ``models[0]``.
        previous: parts whose tokenizer is kept when it comes from the same folder.

    Raises:
        ConfigError: naming the key that is missing or whose value cannot be used.
    """
    folder = settings.tokenizer
    if folder is None and features is not None and features.tokenizer_dir:
        folder = Path(features.tokenizer_dir)
    if folder is None:
        raise ConfigError(
            f"{key}.tokenizer (GATEWAY_TOKENIZER): Triton does not say where the tokenizer of {settings.name!r} is; "
            "set the folder that holds its tokenizer.json."
        )
    max_seq_len = _context(settings, features, key)
    if previous is not None and previous.tokenizer_source == folder:
        return dataclasses.replace(previous, max_seq_len=max_seq_len)
    try:
        tokenizer = Tokenizer.from_folder(folder)
    except TokenizerError as error:
        raise ConfigError(f"{key}.tokenizer (GATEWAY_TOKENIZER): {error}") from None
    try:
        template = load_template(tokenizer, settings.template)
    except TemplateError as error:
        raise ConfigError(f"{key}.template (GATEWAY_TEMPLATE): {error.message}") from None
    return ModelParts(
        tokenizer=tokenizer,
        prompts=PromptBuilder(tokenizer, template, escape_special_tokens=settings.escape_special_tokens),
        max_seq_len=max_seq_len,
        end_ids=tuple(tokenizer.eos_ids),
        end_texts=tuple(tokenizer.token_text(index) for index in tokenizer.eos_ids),
        tokenizer_source=folder,
        knows_developer="developer" in template.source,
        defaults=sampling_defaults(settings.defaults, folder, key),
    )


def _context(settings: ModelSettings, features: EngineFeatures | None, key: str) -> int:
    discovered = features.max_seq_len if features else None
    if settings.max_seq_len is None and discovered is None:
        raise ConfigError(
            f"{key}.max_seq_len (GATEWAY_MAX_SEQ_LEN): Triton does not say the context length of {settings.name!r}; "
            "set the max_seq_len that its engine was built with."
        )
    if settings.max_seq_len is None or discovered is None:
        return settings.max_seq_len or discovered or 0
    if settings.max_seq_len > discovered:
        _log.warning(
            "%s.max_seq_len is %d, but the engine has %d: the engine's is used", key, settings.max_seq_len, discovered
        )
    return min(settings.max_seq_len, discovered)
