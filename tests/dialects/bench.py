"""One gateway in front of all doubles: each dialect is a served model of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from openai import OpenAI

from tests.dialects.dialects import Dialect, model_settings
from tests.doubles.llmapi.server import LlmapiServer
from tests.doubles.stock.server import StockServer
from tests.doubles.text.text_server import TextServer, vllm_model
from tests.stack import GatewayProcess

APART_S = 0.005
"""Seconds between responses of an answer that is cut, so that the cut does not meet its end: that can stop Triton."""
TEMPLATES = Path(__file__).parents[2] / "chat_templates"
# It reads what the shipped one does not.
_MORE_OF_TEMPLATE = """
{%- if reasoning_effort is defined -%}effort {{ reasoning_effort }}{%- endif -%}
{%- for document in documents or [] -%}{{ document.text }}{%- endfor -%}
{%- if enable_thinking is defined -%}thinking {{ enable_thinking }}{%- endif -%}
"""


@dataclass(frozen=True)
class Truth:
    """What an engine had to say to one request.

    Attributes:
        tokens: how many it generated, without an end token.
        finish: ``stop`` or ``length``.
    """

    tokens: int
    finish: str


class Bench:
    """The doubles, and the gateway before them.

    Args:
        folder: for settings and logs.
        stock: the doubles of the engine family.
        llmapi: those of the LLM API's model.
        text: those of the vLLM backend.
        dialects: that it serves.
    """

    def __init__(
        self, folder: Path, stock: StockServer, llmapi: LlmapiServer, text: TextServer, dialects: Sequence[Dialect]
    ) -> None:
        self._stock, self._llmapi, self._text = stock, llmapi, text
        self._template = folder / "template.jinja"
        shipped = TEMPLATES.joinpath("hermes.jinja").read_text(encoding="utf-8")
        self._template.write_text(shipped.replace("{%- if documents %}", "{%- if false %}") + _MORE_OF_TEMPLATE)
        file = folder / "gateway.yaml"
        with stock.together():
            models = [self._settings(dialect) for dialect in dialects]
        file.write_text(yaml.safe_dump({"models": models}))
        self.gateway = GatewayProcess(folder / "log", GATEWAY_CONFIG=str(file))

    def __enter__(self) -> Bench:
        self.gateway.start()
        # One for all calls, without certificates: to load those takes more than a call.
        self.http = httpx.Client(base_url=self.gateway.url, timeout=60, verify=False)
        self.openai = OpenAI(base_url=f"{self.gateway.url}/v1", api_key="-", max_retries=0, timeout=60)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.openai.close()
        self.http.close()
        self.gateway.stop()

    def play(self, *turns: dict[str, Any], chunk: int | Sequence[int] = (1, 3, 2)) -> None:
        """Replace the scripts of all engines, and begin new journals."""
        self._stock.play(*turns, chunk=chunk)
        self._llmapi.play(*turns, chunk=chunk)
        self._text.play(*turns, chunk=chunk)

    def requests(self, dialect: Dialect) -> list[dict[str, Any]]:
        """The journal's entries of requests, but for probes of discovery."""
        servers: dict[str, LlmapiServer | TextServer] = {"llmapi": self._llmapi, "vllm": self._text}
        server = servers.get(dialect.kind, self._stock)
        return server.requests()

    def truths(self, dialect: Dialect, prompts: Sequence[str]) -> list[Truth]:
        """What the engine had to say to the one request with each of the prompts."""
        entries = self.requests(dialect)
        return [_truth(entry) for prompt in prompts for entry in entries if prompt in entry["prompt"]]

    def _settings(self, dialect: Dialect) -> dict[str, Any]:
        if dialect.kind == "llmapi":
            model = self._llmapi.model(dialect.version)
            return model_settings(
                dialect,
                url=self._llmapi.grpc_url,
                model=model,
                tokenizer=str(self._llmapi.model_dir),
                template=str(self._template),
            )
        if dialect.kind == "vllm":
            return model_settings(
                dialect,
                url=self._text.grpc_url,
                model=vllm_model(dialect.version),
                tokenizer=str(self._text.model_dir),
                template=str(self._template),
            )
        stock = self._stock
        if dialect.kind.startswith("bls"):
            model = stock.bls(dialect.version, accumulate=dialect.kind == "bls-accumulate", **dialect.options)
        else:
            model = stock.ensemble(dialect.version, **dialect.options)
        folder = stock.model_dir("sentencepiece" if dialect.spelling == "sentencepiece" else "bytes")
        return model_settings(
            dialect,
            url=stock.grpc_url,
            model=model,
            tokenizer=str(folder),
            template=str(self._template),
        )


def _truth(entry: dict[str, Any]) -> Truth:
    return Truth(entry["generated"], entry["finish"])
