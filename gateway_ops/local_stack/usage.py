"""Snippets that a user can paste to try a gateway that has just come up."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Final

_QUESTION: Final = "What is the capital of France?"


def curl_line(url: str, model: str, environ: Mapping[str, str]) -> str:
    """Return one shell line that streams an answer.

    Args:
        url: base URL of the gateway, without ``/v1``.
        model: name of the served model.
        environ: the gateway's environment; where it sets API keys the line takes the first from it.
    """
    messages = [{"role": "user", "content": _QUESTION}]
    body = {"model": model, "messages": messages, "temperature": 0, "stream": True}
    words = ["curl", "-N", shlex.quote(f"{url}/v1/chat/completions"), "-H 'Content-Type: application/json'"]
    if environ.get("GATEWAY_API_KEYS"):
        words.append('-H "Authorization: Bearer ${GATEWAY_API_KEYS%%,*}"')
    return " ".join([*words, "-d", shlex.quote(json.dumps(body))])


def python_snippet(url: str, model: str, environ: Mapping[str, str]) -> str:
    """Return a short program for the OpenAI SDK; the arguments are those of ``curl_line``."""
    key = 'os.environ["GATEWAY_API_KEYS"].split(",")[0]' if environ.get("GATEWAY_API_KEYS") else '"unused"'
    lines = ["import os", ""] if key != '"unused"' else []
    lines += [
        "from openai import OpenAI",
        "",
        f'client = OpenAI(base_url="{url}/v1", api_key={key})',
        "answer = client.chat.completions.create(",
        f"    model={json.dumps(model)},",
        f'    messages=[{{"role": "user", "content": "{_QUESTION}"}}],',
        "    temperature=0,",
        ")",
        "print(answer.choices[0].message.content)",
    ]
    return "\n".join(lines)
