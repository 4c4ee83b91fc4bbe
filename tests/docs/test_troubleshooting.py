"""Every code of an error has its row in docs/how-to/troubleshooting.md, and what texts say of pages can be opened."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.api.openai.errors import _BY_KIND

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
_CODE = re.compile(r"[a-z]+(?:_[a-z]+)+|timeout")
_NAMED = re.compile(r"\b(docs/(?!source/)[\w/-]+\.md)\b(?:, \"([^\"]+)\")?")
# Texts for users and operators; sources of others have pages named docs/ too.
_TEXTS = ("gateway_ops", "deploy", "docker", "chat_templates/README.md", ".env.example", "gateway.example.yaml")
_OF_OTHERS = re.compile(r"(?:https?://|TensorRT-LLM's |tensorrtllm_backend |upstream's |``?)\S*$|Sources?: .*$")


def codes() -> Iterator[str]:
    """The codes that the server gives its errors, by keyword or as a rejection's third argument."""
    for file in sorted((ROOT / "gateway").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                given = [each.value for each in node.keywords if each.arg == "code"]
                if getattr(node.func, "id", "") == "BadRequestError":
                    given += node.args[2:3]
                yield from (str(each.value) for each in given if isinstance(each, ast.Constant) and each.value)
    yield from (code for _, _, code, _ in _BY_KIND.values() if code)


def test_each_code_of_an_error_has_its_row() -> None:
    section = PAGE.partition("\n## By error code\n")[2].partition("\n## ")[0]
    listed = {code for row in re.findall(r"(?m)^\| .*$", section) for code in re.findall(r"`(\w+)`", row)}
    found = {code for code in codes() if _CODE.fullmatch(code)}
    assert found - listed == set()
    assert len(found) > 30


def test_each_page_that_a_text_names_is_there() -> None:
    names = subprocess.run(["git", "ls-files", *_TEXTS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = [
        (name, *found.groups())
        for name in names.splitlines()
        if (ROOT / name).is_file()
        for line in (ROOT / name).read_text(encoding="utf-8", errors="replace").splitlines()
        for found in _NAMED.finditer(line)
        if not _OF_OTHERS.search(line[: found.start()])
    ]
    lost = [each for each in named if not (ROOT / each[1]).is_file()]
    assert lost == []
    headings = [(page, heading) for _, page, heading in named if heading]
    assert [
        each for each in headings if not re.search(rf"(?m)^#+ {re.escape(each[1])}$", (ROOT / each[0]).read_text())
    ] == []
    assert len(named) > 20
    assert headings


@functools.cache
def sources() -> str:
    """The code with the strings of each expression put together."""
    files = [file for folder in ("gateway", "gateway_ops", "triton_repo") for file in (ROOT / folder).rglob("*.py")]
    return re.sub(r"\"\s*\n\s*f?\"", "", "\n".join(file.read_text(encoding="utf-8") for file in files))


@pytest.mark.parametrize("heading", ["By error text", "By reason of a model"])
def test_each_text_is_one_of_the_code(heading: str) -> None:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    texts = [text for row in re.findall(r"(?m)^\| (.*?) \|", section) for text in re.findall(r"`([^`]+)`", row)]
    parts = {part.strip() for text in texts for part in text.split("...")}
    assert {part for part in parts if part not in sources()} == set()
    assert len(texts) > 10
