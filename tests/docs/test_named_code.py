"""The pages for maintainers name files, modules, classes and functions, and code cites sections: each exists."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.text.families.family_choice import ENTRY_POINTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "contributing/architecture", "contributing/decisions", "contributing/how-to", "contributing/internals",
    "reference/glossary",
)  # fmt: skip
MOST_TERMS = 60
SOURCES = ("gateway", "gateway_ops", "tools", "triton_repo", "tests")
FILES = r"py|md|yaml|yml|pbtxt|jinja|toml|json|ini|txt|sh"

# A file, or a folder with a slash at its end; parts in angle brackets or braces are the reader's to fill in.
_PATH = re.compile(rf"(?<![\w/.<>{{}}*-])(?:[\w.-]+/)*(?:[\w-]+/(?![\w<{{*])|\.?[\w.-]+\.(?:{FILES})\b)")
_DOTTED = re.compile(r"(?<![\w./<-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?![\w/])")
# A class or a function by itself, in the pictures and in backticks: two words in one.
_NAME = re.compile(r"(?<![\w./<{-])(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|_?[a-z0-9]+(?:_[a-z0-9]+)+)(?![\w./={-])")
_CLASS = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)*")
_OF_OTHERS = {"ModelInferRequest", "ModelStreamInfer", "ModelConfig", "TypedDict", "Attributes"}
_LINK = re.compile(r"\]\([^)]*\)")
# Names of other programs, of settings and of the wire, with what they belong to.
_FOREIGN = re.compile(
    r"^(?:server|limits|timeouts|models|deployments|triton|grpc|TensorRT|project|config\.json|tokenizer\.json|gateway\.yaml"
    r"|generation_config\.json|tokenizer_config\.json)\b(?!/)"
)


@functools.cache
def files() -> tuple[str, ...]:
    """Tracked files and those that are new, from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return tuple(f"/{name}" for name in names if name and (ROOT / name).exists())


def exists(path: str) -> bool:
    """Whether a file or folder ends with this path, at a border of names."""
    return any(name.endswith(f"/{path}") or (path.endswith("/") and f"/{path}" in name) for name in files())


def _defined(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{prefix}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield f"{prefix}{node.name}"
            yield from _defined(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (f"{prefix}{each.id}" for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield f"{prefix}{node.target.id}"


@functools.cache
def defined() -> frozenset[str]:
    """Every name as ``module.name``, ``Class.method`` and ``name``, with longer forms of the module."""
    found: set[str] = set()
    for file in files():
        if not file.endswith(".py") or not file.startswith(tuple(f"/{source}/" for source in SOURCES)):
            continue
        module = file[1:-3].removesuffix("/__init__").split("/")
        names = list(_defined(ast.parse((ROOT / file[1:]).read_text(encoding="utf-8")).body, ""))
        for start in range(len(module)):
            found.add(".".join(module[start:]))
            found.update(".".join((*module[start:], name)) for name in names)
        found.update(names)
    return frozenset(found)


def code(page: str) -> Iterator[str]:
    """The text of a page where it names code: pictures, and what stands in backticks; also all of its tables."""
    for line in _LINK.sub("]", (DOCS / f"{page}.md").read_text(encoding="utf-8")).splitlines():
        if line.startswith("    "):
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


@pytest.mark.parametrize("page", PAGES)
def test_each_path_exists(page: str) -> None:
    named = {path for text in code(page) for path in _PATH.findall(text) if not _FOREIGN.match(path)}
    assert [path for path in sorted(named) if not exists(path)] == []
    assert len(named) > 5, "a pattern that finds nothing proves nothing"


@pytest.mark.parametrize("page", PAGES)
def test_each_dotted_name_exists(page: str) -> None:
    dotted = {
        name
        for text in code(page)
        for name in _DOTTED.findall(text)
        if name != ENTRY_POINTS and not _FOREIGN.match(name) and not re.search(rf"\.(?:{FILES})$", name)
    }
    assert [name for name in sorted(dotted) if name not in defined() and not exists(name.replace(".", "/") + "/")] == []
    assert page != "contributing/internals" or len(dotted) > 40


@pytest.mark.parametrize("page", PAGES)
def test_each_class_and_function_exists(page: str) -> None:
    """In the pictures every name of two words or more; elsewhere the classes that stand in backticks."""
    texts = list(code(page))
    pictures = [text for text in texts if text.startswith("    ")] if page == "contributing/internals" else []
    named = {name for text in pictures for name in _NAME.findall(text)}
    named |= {text for text in texts if _CLASS.fullmatch(text)}
    assert [name for name in sorted(named - _OF_OTHERS) if name not in defined()] == []
    assert named


def test_the_glossary_is_short() -> None:
    """Its own terms are the first cells of the rows behind those of the trade, each given once."""
    page = (DOCS / "reference/glossary.md").read_text(encoding="utf-8")
    _, _, own = page.partition("\n## Deployments and repositories")
    rows = re.findall(r"(?m)^\| (\S.*?) \| (.*) \|$", own)
    terms = [term for term, meaning in rows if (term, meaning) != ("term", "meaning")]
    assert 40 < len(terms) <= MOST_TERMS
    assert sorted(set(terms)) == sorted(terms)


# "wire contract 1.3", "wire contract 1.3, 2.8 and 3.2", "wire contract 1.1 to 1.6"; over the end of a line, too.
_CITATION = re.compile(r"wire contract,?\s((?:(?:,|and|to|\s|#)*\d+(?:\.\d+)+)+|\d+\b)", re.IGNORECASE)


def test_each_cited_section_of_the_wire_contract_exists() -> None:
    page = "/docs/contributing/wire-contract.md"
    sections = set(re.findall(r"(?m)^#{2,4} (\d+(?:\.\d+)*)", (ROOT / page[1:]).read_text()))
    citations = [
        (file, number)
        for file in files()
        if file != page and file.endswith((".py", ".md", ".pbtxt", ".yaml", ".yml", ".toml"))
        for each in _CITATION.findall((ROOT / file[1:]).read_text(encoding="utf-8"))
        for number in re.findall(r"\d+(?:\.\d+)*", each)
    ]
    assert [each for each in citations if each[1] not in sections] == []
    assert len(citations) > 40, "the code cites the page; a pattern that finds nothing proves nothing"
