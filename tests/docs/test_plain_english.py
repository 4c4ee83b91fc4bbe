"""No word that a reader must decode is in docstrings, comments and texts."""

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
    """Strings of code with a blank and their line numbers; docstrings and names of code are left out."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = re.sub(r"`[^`]+`", "", node.value)
            if " " in text:
                yield node.lineno, text


def test_no_listed_word_is_in_texts_for_users_and_operators() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {text}"
        for file in sorted((ROOT / "gateway").rglob("*.py"))
        for number, text in texts(file.read_text())
        if WORDS.search(text) or ONE_WORD.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_listed_word_is_in_docstrings_and_comments(package: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for number, line in prose(file.read_text())
        if WORDS.search(line) or ONE_WORD.search(line)
    ]
    assert found == []


def test_listed_words_are_found_in_texts_but_not_in_docstrings() -> None:
    source = '"""Apart."""\n\nTEXT = f"it is refused: {1}"\nNAME = "refused"\n'
    assert [number for number, text in texts(source) if ONE_WORD.search(text)] == [3]


def test_the_words_are_found() -> None:
    word = WORDS.pattern.removeprefix(r"\b(").partition("|")[0]
    source = f'"""{word.capitalize()} does."""\n\nX = 1  # by {word}.\nY = "{word}"\n'
    assert [number for number, line in prose(source) if WORDS.search(line)] == [3, 1]
