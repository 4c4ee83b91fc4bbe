"""Words that a reader must decode stand in no docstring and no comment."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = re.compile(
    r"\b(nobody|somebody|whoever|who asks|strangers?|ours|theirs|everybody|as ever|besides|seldom|likewise|at once|"
    r"away|apart|ado|mend\w*|of the name)\b",
    re.IGNORECASE,
)
ONE_WORD = re.compile(r"\b(refus(?!als?\b)\w+|told|sealed)\b", re.IGNORECASE)
"""Rejected, reported and encrypted are the words for these; a refusal is what OpenAI calls so."""
CODE = re.compile(r"``?[^`]+``?|\"[^\"]*\"|'[^']*'|^\s*\w+: ")
"""Names and quotations, and arguments that a docstring describes."""
PACKAGES = ("gateway", "gateway_ops")

TEXT_WORDS = re.compile(
    r"\b(nobody|somebody|whoever|who asks|strangers?|ours|theirs|everybody|as ever|besides|seldom|likewise|at once|"
    r"away|apart|ado|mend\w*|of the name|refus(?!als?\b)\w+|told|sealed)\b",
    re.IGNORECASE,
)
COMMANDS = ("gateway_ops", "triton_repo")
PAGE = "gateway/web/page"


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Lines of docstrings and comments with their numbers; names of code and quotations are left out."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], CODE.sub("", token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number, line in enumerate(node.value.value.splitlines()):
                yield node.lineno + number, CODE.sub("", line)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """String constants with a blank and their line numbers; values in f-strings are left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, "\n".join(CODE.sub("", line) for line in node.value.splitlines())


def texts_of_the_commands() -> Iterator[tuple[str, str]]:
    """Texts of commands, Triton models and the chat page with their places."""
    for folder in COMMANDS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for number, text in texts(file.read_text()):
                yield f"{file.relative_to(ROOT)}:{number}", text
    for file in sorted(each for each in (ROOT / PAGE).iterdir() if each.suffix in {".html", ".js"}):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            yield f"{PAGE}/{file.name}:{number}", line


def test_no_listed_word_is_in_texts_of_the_commands() -> None:
    found = [f"{place}: {text.strip()}" for place, text in texts_of_the_commands() if TEXT_WORDS.search(text)]
    assert found == []


def test_listed_words_are_found_in_texts_only() -> None:
    word = TEXT_WORDS.pattern.removeprefix(r"\b(").partition("|")[0]
    source = f'{word} = "{word}"\n\nX = f"{{{word}}} says {word}."\n'
    assert [number for number, text in texts(source) if TEXT_WORDS.search(text)] == [3]
    assert {place.partition("/")[0] for place, _ in texts_of_the_commands()} == {*COMMANDS, "gateway"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_listed_word_is_in_docstrings_and_comments(package: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for number, line in prose(file.read_text())
        if WORDS.search(line) or ONE_WORD.search(line)
    ]
    assert found == []


def test_the_words_are_found() -> None:
    word = WORDS.pattern.removeprefix(r"\b(").partition("|")[0]
    source = f'"""{word.capitalize()} does."""\n\nX = 1  # by {word}.\nY = "{word}"\n'
    assert [number for number, line in prose(source) if WORDS.search(line)] == [3, 1]
