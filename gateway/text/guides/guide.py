"""A guide: a constraint on the engine's output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GuideKind = Literal["json", "json_schema", "regex", "ebnf_grammar", "structural_tag"]
GuideBackend = Literal["xgrammar", "llguidance"]
"""Backends that compile guides in TensorRT-LLM."""


@dataclass(frozen=True, slots=True)
class Guide:
    """A constraint on the engine's output, token by token (wire contract 2.7).

    Attributes:
        kind: the engine's word for the kind; ``EngineFeatures.guide_types`` has the kinds that an engine takes.
        text: JSON schema, regular expression, grammar (GBNF) or structural tag (JSON); empty for ``json``.
    """

    kind: GuideKind
    text: str = ""
