"""One gateway over the tiny model in the real Triton: the same engine as three served models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess

TOKENS, TEXT, OPEN = "tiny", "tiny-text", "tiny-open"
MAX_SEQ_LEN = 512
TEMPLATE = """\
{%- if reasoning_effort is defined -%}effort={{ reasoning_effort }};{%- endif -%}
{%- if tone is defined -%}tone={{ tone }};{%- endif -%}
{%- for document in documents or [] -%}doc={{ document.text }};{%- endfor -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def serve(folder: Path, triton: TritonServer, tokenizer: Path) -> Iterator[GatewayProcess]:
    """``tiny`` speaks token ids, ``tiny-text`` text, ``tiny-open`` allows what is off by default."""
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    model: dict[str, Any] = {
        "triton": {"url": triton.grpc_url},
        "tokenizer": str(tokenizer),
        "max_seq_len": MAX_SEQ_LEN,
        "path": "tokens",
    }
    opened = {
        "template": "template.jinja",
        "allow_request_template": True,
        "max_stops": 8,
        "max_tokens_policy": "reject",
        "policies": {"impossible": "warn", "unknown": "strict"},
    }
    models = [
        {"name": TOKENS, **model},
        {"name": TEXT, **model, "path": "ensemble"},
        {"name": OPEN, **model, **opened},
    ]
    with GatewayProcess(folder / "log", {"models": models}) as process:
        yield process


class Asker:
    """Asks one gateway for short answers: 8 tokens, greedy, unless told otherwise."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=60)

    def close(self) -> None:
        self.client.close()

    def post(self, content: str = "Tell me more", *, model: str = TOKENS, **fields: Any) -> httpx.Response:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 8,
            "temperature": 0,
            **fields,
        }
        return self.client.post("/v1/chat/completions", json=body)

    def chat(self, content: str = "Tell me more", **fields: Any) -> dict[str, Any]:
        """The body of an answer that must be one."""
        answer = self.post(content, **fields)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def text(self, content: str = "Tell me more", **fields: Any) -> str:
        return str(self.chat(content, **fields)["choices"][0]["message"]["content"])

    def ids(self, content: str = "Tell me more", **fields: Any) -> list[int]:
        """The ids of the answer."""
        return list(self.chat(content, return_token_ids=True, **fields)["choices"][0]["token_ids"])

    def prompt_ids(self, content: str = "Tell me more", **fields: Any) -> list[int]:
        """The ids of the prompt."""
        return list(self.chat(content, return_token_ids=True, **{"max_tokens": 1, **fields})["prompt_token_ids"])

    def rejected(self, content: str = "Tell me more", **fields: Any) -> dict[str, Any]:
        """The error of a request that must be refused."""
        answer = self.post(content, **fields)
        assert answer.status_code == 400, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert error["message"].endswith(".")
        return error

    def stream(self, content: str = "Tell me more", **fields: Any) -> list[str]:
        """The data of each event of a stream, ``[DONE]`` left out."""
        answer = self.post(content, stream=True, **fields)
        assert answer.status_code == 200, answer.text
        *events, done = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
        assert done == "[DONE]"
        return events
