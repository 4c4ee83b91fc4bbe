"""One gateway in front of all doubles: each dialect is a served model of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Truth(NamedTuple):
    """What an engine had to say: tokens that it generated, without an end token, and ``stop`` or ``length``."""

    tokens: int
    finish: str


class Bench:
    """The doubles, and the gateway before them, whose settings and logs lie in a folder."""

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
        return self._server(dialect).requests()

    def truths(self, dialect: Dialect, prompts: Sequence[str]) -> list[Truth]:
        """What the engine had to say to the one request with each of the prompts."""
        entries = self.requests(dialect)
        return [
            Truth(entry["generated"], entry["finish"])
            for prompt in prompts
            for entry in entries
            if prompt in entry["prompt"]
        ]

    def _settings(self, dialect: Dialect) -> dict[str, Any]:
        server = self._server(dialect)
        if isinstance(server, StockServer):
            folder = server.model_dir("sentencepiece" if dialect.spelling == "sentencepiece" else "bytes")
            if dialect.kind.startswith("bls"):
                model = server.bls(dialect.version, accumulate=dialect.kind == "bls-accumulate", **dialect.options)
            else:
                model = server.ensemble(dialect.version, **dialect.options)
        else:
            folder = server.model_dir
            model = vllm_model(dialect.version) if dialect.kind == "vllm" else self._llmapi.model(dialect.version)
        template = str(self._template)
        return model_settings(dialect, url=server.grpc_url, model=model, tokenizer=str(folder), template=template)

    def _server(self, dialect: Dialect) -> LlmapiServer | TextServer | StockServer:
        servers: dict[str, LlmapiServer | TextServer] = {"llmapi": self._llmapi, "vllm": self._text}
        return servers.get(dialect.kind, self._stock)
