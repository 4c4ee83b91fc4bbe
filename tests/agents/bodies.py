"""Requests that agents sent, as they were recorded: their fields, nesting and tools, with neutral texts.

``bodies/`` has one file for each, ``tools.json`` the tools that their lists name. Recorded from codex 0.169.0, Claude
Code 2.1.330, openai-agents 0.24.0 (Python) and 0.20.0 (JS), the AI SDK 7.0.173, pydantic-ai 2.68.0 and
langchain-openai 1.7.3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_TOOLS: dict[str, Any] = json.loads((_HERE / "tools.json").read_text(encoding="utf-8"))
NAMES = sorted(path.stem for path in (_HERE / "bodies").glob("*.json"))


def body(name: str) -> dict[str, Any]:
    """The body of one request, a new one with each call."""
    whole: dict[str, Any] = _with_tools(json.loads((_HERE / "bodies" / f"{name}.json").read_text(encoding="utf-8")))
    return whole


def is_anthropic(name: str) -> bool:
    """Whether it went to ``/v1/messages``, else to ``/v1/responses``."""
    return "messages" in body(name)


def _with_tools(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: [_TOOLS[name] for name in each] if key == "tools" else _with_tools(each)
                for key, each in value.items()}  # fmt: skip
    return [_with_tools(each) for each in value] if isinstance(value, list) else value
