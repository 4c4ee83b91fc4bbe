"""Every dialect that is served: which double speaks it, how the gateway is set up for it, what it can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.doubles.llmapi.versions import VERSIONS as LLMAPI_VERSIONS
from tests.doubles.stock.repository import VERSIONS as STOCK_VERSIONS
from tests.doubles.text.vllm_sampling import VERSIONS as VLLM_VERSIONS

Kind = Literal["tokens", "ensemble", "bls", "bls-accumulate", "llmapi", "vllm"]

# 24.12 declares what 25.10 does and lacks guides, which a probe tells: tests/integration/test_vllm_dialect.py.
VLLM_SERVED = tuple(version for version in VLLM_VERSIONS if version != "24.12")
NEWEST = STOCK_VERSIONS[-1]
_STRICT = {"impossible": "strict", "hints": "strict", "unknown": "strict"}


@dataclass(frozen=True)
class Dialect:
    """One way to reach an engine.

    Attributes:
        kind: the model that is called: the engine step by token ids, the ensemble or BLS by text, the LLM API's, or
            that of the vLLM backend.
        version: of TensorRT-LLM; of Triton, where its vLLM backend is called.
        variant: distinguishes it from others of the kind and version.
        options: of the stock repository; see `tests.doubles.stock.repository.Stock`.
        settings: of the served model beside those that all have.
    """

    kind: Kind
    version: str
    variant: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The served model's name, which is the test's id."""
        return "-".join(filter(None, (self.kind, self.variant, self.version)))

    @property
    def spelling(self) -> str:
        """Of the tokenizer of a stock repository."""
        return str(self.options.get("spelling", "bytes"))


def _stock(version: str) -> list[Dialect]:
    # 0.12 cannot leave the prompt out of a whole answer by request.
    options = {"exclude_input": True} if version == "0.12" else {}
    whole = {"path": "ensemble", "text_streaming": "whole"}
    return [
        Dialect("tokens", version, options=options, settings={"path": "tokens"}),
        Dialect("ensemble", version, options=options, settings=whole),
        Dialect("bls", version, options=options),
        Dialect("bls-accumulate", version, options=options),
    ]


def _variants() -> list[Dialect]:
    sp = {"spelling": "sentencepiece"}
    whole = {"path": "ensemble", "text_streaming": "whole"}
    once = {"decoupled": False}
    return [
        Dialect("ensemble", NEWEST, variant="default", settings={"path": "ensemble"}),
        Dialect("tokens", NEWEST, variant="guided", options={"guided": True}, settings={"path": "tokens"}),
        Dialect("ensemble", NEWEST, variant="guided", options={"guided": True}, settings=whole),
        Dialect("ensemble", "0.16", variant="unary", options=once, settings={"path": "ensemble"}),
        Dialect("bls", "0.16", variant="unary", options=once),
        Dialect("tokens", NEWEST, variant="sp", options=sp, settings={"path": "tokens"}),
        Dialect("ensemble", NEWEST, variant="sp", options=sp, settings=whole),
        Dialect("bls-accumulate", NEWEST, variant="sp", options=sp),
    ]


def _llmapi() -> list[Dialect]:
    return [
        Dialect("llmapi", version, settings={"path": "llmapi", "engine_version": version})
        for version in LLMAPI_VERSIONS
    ]


DIALECTS: tuple[Dialect, ...] = (
    *(dialect for version in STOCK_VERSIONS for dialect in _stock(version)),
    *_variants(),
    *_llmapi(),
    *(Dialect("vllm", version, settings={"path": "vllm"}) for version in VLLM_SERVED),
)
"""All of them."""


def parameters(dialects: Iterable[Dialect]) -> list[Any]:
    """Dialects as parameters of tests; between the oldest and the newest version those without more are long runs."""
    return [
        pytest.param(dialect, id=dialect.name, marks=[pytest.mark.long] if _is_between(dialect) else [])
        for dialect in dialects
    ]


def _is_between(dialect: Dialect) -> bool:
    known = {"llmapi": tuple(LLMAPI_VERSIONS), "vllm": VLLM_SERVED}.get(dialect.kind, STOCK_VERSIONS)
    oldest, *_, newest = known
    return not dialect.variant and dialect.version not in (oldest, newest)


def model_settings(dialect: Dialect, *, url: str, model: str, tokenizer: str, template: str) -> dict[str, Any]:
    """The entry of the served model in the gateway's settings file."""
    chat = {"template": template, "family": "hermes", "allow_request_template": True}
    return {
        "name": dialect.name, "triton": {"url": url, "model": model}, "tokenizer": tokenizer, "max_seq_len": 2048,
        "max_tokens_policy": "clamp", "policies": _STRICT, **(chat if dialect.spelling == "bytes" else {}),
        **dialect.settings,
    }  # fmt: skip
