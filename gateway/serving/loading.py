"""Loads tokenizer, chat template and context length of a served model, from settings or Triton's configuration."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.generation import EngineFeatures
from gateway.generation.request import LoraAdapter, PromptTable
from gateway.serving.adapter_files import AdapterFileError, read_adapter, read_prompt_table, read_size
from gateway.settings import ConfigError, ModelSettings
from gateway.settings.model_settings import SamplingDefaults
from gateway.text.families import Family
from gateway.text.families.family_choice import (
    ARGUMENTS,
    EXAMPLE,
    FamilyChoice,
    ModelEvidence,
    UnknownFamilyError,
    WrittenCall,
    choose,
)
from gateway.text.prompt import ChatTemplate, PromptBuilder, TemplateError, history, load_template
from gateway.text.tokens import Tokenizer, TokenizerError

_USER = {"role": "user", "content": "How is the weather?"}
_TEXT = {"role": "assistant", "content": "Let me see."}
_FUNCTION = {"name": EXAMPLE.name, "arguments": json.dumps(ARGUMENTS)}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call_a", "type": "function", "function": _FUNCTION}],
}


_TOKEN = re.compile(r"<[^<>\s]*>|\[/?[A-Z_]+\]")


def written_call(template: ChatTemplate) -> WrittenCall | None:
    """The example call as the template writes it, without the text of other messages; None without calls."""
    if not template.abilities(tools=True).calls:
        return None
    try:
        spoken, called = (_render(template, [_USER, message]) for message in (_TEXT, _CALL))
        opening = _render(template, [_USER], opened=True)[len(_render(template, [_USER])) :]
    except TemplateError:
        return None
    begin = _common(spoken, called)
    end = len(called) - _common(spoken[begin:][::-1], called[begin:][::-1])
    if opening.strip() and opening in called[begin:end]:
        begin = called.rindex(opening, begin, end) + len(opening)
    for token in _TOKEN.finditer(called):  # a token that the two begin or end alike is one whole
        begin = token.start() if token.start() < begin < token.end() else begin
        end = token.end() if token.start() < end < token.end() else end
    return WrittenCall(called[:begin], called[begin:end]) if EXAMPLE.name in called[begin:end] else None


def _render(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], *, opened: bool = False) -> str:
    function = {"name": EXAMPLE.name, "description": EXAMPLE.description, "parameters": EXAMPLE.parameters}
    shown = history(messages, template.abilities(tools=True))
    return template.render(shown, tools=[{"type": "function", "function": function}], add_generation_prompt=opened)


def _common(one: str, other: str) -> int:
    """The length of the common beginning of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


_log = logging.getLogger(__name__)
_TOOL_TEMPLATE = "tool_use"  # Hugging Face's name for it


@dataclass(frozen=True, slots=True)
class ModelParts:
    """The tokenizer, templates and limits of a model.

    Attributes:
        tokenizer: the tokenizer.
        prompts: renders and tokenizes messages.
        max_seq_len: prompt plus generated tokens at most.
        end_ids: ids that end an answer, the engine's end_id first.
        end_texts: their texts.
        tokenizer_source: folder that the tokenizer came from.
        defaults: values of fields that requests leave out.
        choice: the choice of the model family.
        tool_template: a separate template for conversations with tools; None without one.
        lora: the adapter that every request carries.
        prompt_tables: virtual tokens that requests may put before their prompts, by name.
    """

    tokenizer: Tokenizer
    prompts: PromptBuilder
    max_seq_len: int
    end_ids: tuple[int, ...]
    end_texts: tuple[str, ...]
    tokenizer_source: Path
    defaults: SamplingDefaults
    choice: FamilyChoice
    tool_template: ChatTemplate | None = None
    lora: LoraAdapter | None = None
    prompt_tables: Mapping[str, PromptTable] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        """The model family."""
        return self.choice.family

    def template(self, *, tools: bool) -> ChatTemplate:
        """The template of a conversation, by whether it shows tools."""
        return self.tool_template if tools and self.tool_template is not None else self.prompts.template


def needs_discovery(settings: ModelSettings) -> bool:
    """Tell whether the settings leave values to Triton's configuration."""
    return settings.tokenizer is None or settings.max_seq_len is None


def load_parts(
    settings: ModelSettings, features: EngineFeatures | None, key: str, previous: ModelParts | None = None
) -> ModelParts:
    """Load everything that a model needs except its engine, from files, off the event loop.

    Args:
        settings: settings of the model.
        features: features of the engine; None before discovery.
        key: path of the model in the settings, for messages, such as ``models[0]``.
        previous: parts whose tokenizer is kept when it comes from the same folder.

    Raises:
        ConfigError: naming the key that is missing or whose value cannot be used.
    """
    folder = settings.tokenizer
    if folder is None and features is not None and features.tokenizer_dir:
        folder = Path(features.tokenizer_dir)
    if folder is None:
        known = settings.max_seq_len or (features and features.max_seq_len)
        more = "" if known else ", and max_seq_len (GATEWAY_MAX_SEQ_LEN), which Triton does not report either"
        raise ConfigError(
            f"{key}.tokenizer (GATEWAY_TOKENIZER): Triton does not report where the tokenizer of {settings.name!r} "
            f"is; set the folder of its tokenizer.json{more}."
        )
    max_seq_len = _context(settings, features, key)
    if previous is not None and previous.tokenizer_source == folder:
        return dataclasses.replace(previous, max_seq_len=max_seq_len)
    try:
        tokenizer = Tokenizer.from_folder(folder)
    except TokenizerError as error:
        raise ConfigError(f"{key}.tokenizer (GATEWAY_TOKENIZER): {error}") from None
    template, tool_template = _templates(tokenizer, settings, key)
    for each in (template, tool_template or template):
        each.abilities(tools=False)  # renders now, so that the first request need not
        each.abilities(tools=True)
    return ModelParts(
        tokenizer=tokenizer,
        prompts=PromptBuilder(tokenizer, template, escape_special_tokens=settings.escape_special_tokens),
        max_seq_len=max_seq_len,
        end_ids=tuple(tokenizer.eos_ids),
        end_texts=tuple(tokenizer.token_text(index) for index in tokenizer.eos_ids),
        tokenizer_source=folder,
        defaults=sampling_defaults(settings.defaults, folder, key),
        choice=_choice(tokenizer, tool_template or template, settings, key),
        tool_template=tool_template,
        lora=_lora(settings, folder, key),
        prompt_tables=_prompt_tables(settings, folder, key),
    )


def _templates(tokenizer: Tokenizer, settings: ModelSettings, key: str) -> tuple[ChatTemplate, ChatTemplate | None]:
    """The template, and the one that the folder names for tools; a configured template serves both."""
    try:
        template = load_template(tokenizer, settings.template)
        own = settings.template is None and _TOOL_TEMPLATE in tokenizer.named_templates
        return template, load_template(tokenizer, name=_TOOL_TEMPLATE) if own else None
    except TemplateError as error:
        raise ConfigError(f"{key}.template (GATEWAY_TEMPLATE): {error.message}") from None


def _choice(tokenizer: Tokenizer, template: ChatTemplate, settings: ModelSettings, key: str) -> FamilyChoice:
    evidence = ModelEvidence(
        architectures=tokenizer.architectures,
        model_type=tokenizer.model_type,
        template=template.source,
        written=written_call(template),
        has_token=lambda text: tokenizer.token_id(text) is not None,
    )
    try:
        return choose(evidence, settings.family)
    except UnknownFamilyError as error:
        raise ConfigError(f"{key}.family: {error}") from None


def _lora(settings: ModelSettings, model: Path, key: str) -> LoraAdapter | None:
    if settings.lora is None:
        return None
    lora = settings.lora
    if lora.folder is None:
        return LoraAdapter(lora.task_id, name=lora.name or "", path=lora.path or "", source=lora.source)
    try:
        return read_adapter(lora.folder, lora.task_id, read_size(model))
    except AdapterFileError as error:
        raise ConfigError(f"{key}.lora.folder: {error}.") from None


def _prompt_tables(settings: ModelSettings, model: Path, key: str) -> Mapping[str, PromptTable]:
    tables = {}
    for name, path in settings.prompt_tables.items():
        try:
            tables[name] = read_prompt_table(path, read_size(model))
        except AdapterFileError as error:  # noqa: PERF203 - few
            raise ConfigError(f"{key}.prompt_tables.{name}: {error}.") from None
    return tables


def _context(settings: ModelSettings, features: EngineFeatures | None, key: str) -> int:
    discovered = features.max_seq_len if features else None
    if settings.max_seq_len is None and discovered is None:
        raise ConfigError(
            f"{key}.max_seq_len (GATEWAY_MAX_SEQ_LEN): Triton does not report the context length of "
            f"{settings.name!r}; set the max_seq_len that its engine was built with."
        )
    if settings.max_seq_len is None or discovered is None:
        return settings.max_seq_len or discovered or 0
    if settings.max_seq_len > discovered:
        _log.warning(
            "%s.max_seq_len is %d, but the engine has %d; the value of the engine is used",
            key,
            settings.max_seq_len,
            discovered,
            extra={"event": "max_seq_len_lowered"},
        )
    return min(settings.max_seq_len, discovered)


_FROM_MODEL = ("temperature", "top_p", "top_k", "repetition_penalty")


def sampling_defaults(own: SamplingDefaults, folder: Path, key: str) -> SamplingDefaults:
    """Fill the operator's defaults up from ``generation_config.json``, if ``own.generation_config`` says so.

    Args:
        own: defaults of the settings.
        folder: folder of the tokenizer.
        key: path of the model in the settings, for messages.

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
