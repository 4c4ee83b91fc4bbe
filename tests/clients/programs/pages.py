"""The settings that the pages of the programs show, as tests run them."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[3] / "docs" / "how-to" / "clients"
ADDRESS = "http://127.0.0.1:9000"
MODEL = "qwen3-32b"  # as the pages call the served model
SECTIONS = {
    "codex": ("coding-agents", "Codex"),
    "claude-code": ("coding-agents", "Claude Code"),
    "opencode": ("coding-agents", "opencode"),
    "continue": ("coding-agents", "Continue"),
    "openai-sdk": ("README", "OpenAI's SDKs"),
    "anthropic-sdk": ("README", "Anthropic's SDKs"),
    "langchain": ("README", "LangChain"),
    "ai-sdk": ("README", "AI SDK"),
    "openai-agents": ("README", "OpenAI's Agents SDK"),
    "pydantic-ai": ("README", "Pydantic AI"),
}


def page(name: str) -> str:
    """The section of a page that is about a program or a library, by the program's name in ``SECTIONS``."""
    file, heading = SECTIONS[name]
    text = (PAGES / f"{file}.md").read_text(encoding="utf-8")
    return re.split(r"(?m)^## ", text.partition(f"\n## {heading}\n")[2])[0]


def blocks(name: str, language: str, url: str) -> list[str]:
    """The code blocks of one language on a page, with ``url`` in place of the gateway's address."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return [block.replace(ADDRESS, url) for block in found]


def exports(block: str) -> dict[str, str]:
    """The variables that a shell block exports."""
    return dict(re.findall(r"^export (\w+)=(\S*)", block, re.MULTILINE))


def named(name: str) -> list[str]:
    """What the page says is left out and named, sorted."""
    _, _, table = page(name).partition("### Left out")
    return sorted(re.findall(r"^\| `([^`]+)`", table.partition("\n### ")[0], re.MULTILINE))
