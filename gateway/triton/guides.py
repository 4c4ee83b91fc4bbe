"""Reads the kinds of guides that an engine takes from its configuration (wire contract 2.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from gateway.text.guides.guide import Guide, GuideBackend, GuideKind
from gateway.triton import hints
from gateway.triton.model_view import ModelView

PARAMETER = "guided_decoding_guide_types"
"""The engine's parameter that lists them, separated by commas."""

KINDS: tuple[GuideKind, ...] = get_args(GuideKind)
BACKENDS: tuple[GuideBackend, ...] = get_args(GuideBackend)

# What TensorRT-LLM's backends take. Structural tags are left out: the C++ one ignores unknown kinds in silence.
_UPSTREAM = frozenset({"json", "json_schema", "regex", "ebnf_grammar"})
_INPUTS = frozenset({"guided_decoding_guide_type", "guided_decoding_guide"})
_SMALLEST: Mapping[GuideKind, str] = {
    "json": "",
    "json_schema": '{"type": "object"}',
    "regex": "a",
    "ebnf_grammar": 'root ::= "a"',
    "structural_tag": '{"structures": [], "triggers": []}',
}


def declared_guide_types(called: ModelView, engine: ModelView | None) -> frozenset[str]:
    """Read the kinds of guides that may be sent.

    An engine that does not list them takes TensorRT-LLM's own, where its configuration names a backend for them.

    Args:
        called: the model that requests name.
        engine: the engine model, which has the parameters; the same as ``called`` on the tokens path.

    Returns:
        Kinds of `Guide`; empty without guided decoding. Unknown names are left out.
    """
    if engine is None or not (called.inputs >= _INPUTS and engine.inputs >= _INPUTS):
        return frozenset()
    listed = hints.parameter(engine, PARAMETER)
    if listed is not None:
        return frozenset(KINDS) & {kind.strip() for kind in listed.split(",")}
    if PARAMETER in engine.parameters:
        return frozenset()  # a variable that was not filled in
    return _UPSTREAM if hints.parameter(engine, "guided_decoding_backend") else frozenset()


def declared_guide_backend(engine: ModelView | None) -> GuideBackend | None:
    """Read the compiler of an engine's guides.

    Returns:
        ``llguidance`` for this project's reference engine, else the name in the configuration. None where the name is
        not known, and where ``tensorrt_llm`` gets the name from an environment other than the gateway's.
    """
    if hints.parameter(engine, "engine") == "reference":
        return "llguidance"
    stated = hints.parameter(engine, "guided_decoding_backend")
    return next((backend for backend in BACKENDS if backend == stated), None)


def smallest_guide(kinds: frozenset[str]) -> Guide:
    """Make a guide of one of ``kinds``, at least one, that costs the engine next to nothing."""
    kind = next(kind for kind in KINDS if kind in kinds)
    return Guide(kind, _SMALLEST[kind])
