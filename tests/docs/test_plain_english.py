"""Words that a reader must decode are in no docstring, comment, text or page, and name no class or package."""

from __future__ import annotations

import ast
import functools
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
RESPONSE = r"answer(?:s|ed|ing) (?:with )?(?:status )?[1-5]\d\d|HTTP answers?|(?:is|are) answered with status"
ONE_WORD = re.compile(rf"\b(refus(?!als?\b)\w+|told|sealed|{RESPONSE})\b", re.IGNORECASE)
"""Rejected, reported and encrypted are the words for these; a refusal is what OpenAI calls so, and a model answers."""
CODE = re.compile(r"``?[^`]+``?|\"[^\"]*\"|'[^']*'|^\s*\w+: ")
"""Names and quotations, and arguments that a docstring describes."""
SHIPPED = ("gateway", "gateway_ops")
PACKAGES = (*SHIPPED, "tools")
EVERYDAY = re.compile(
    r"_*("
    r"Admitted|Aim|All|Any|Anyone|Anything|Asked|Before|Begun|Both|Chosen|Counted|Done|Each|Everything|Found|"
    r"Given|Gone|Held|It|Kept|Known|Left|Lost|Made|Meant|Met|Mine|Nothing|Now|One|Other|Others|Ours|Put|Rest|"
    r"Said|Seen|Seldom|Sent|Shown|Something|Standing|Stretch|Taken|That|Their|Them|These|They|Thinker|This|"
    r"Those|Told|Thought|Us|Wanted|Way|What|Which|Who|Written|Yours"
    r")"
)
"""Participles, pronouns and everyday words, each of which says too little where it is the whole name of a class."""
PARTICIPLE = re.compile(r"[A-Z][a-z0-9]*(ed|ing)")
FIELD_NOUNS = {"Finding", "Paging", "Reasoning", "Rendering", "Setting", "Timing", "Tracing"}
SERVING = "serving"
"""The one package that is named by a gerund: model serving is what the field calls its work."""
PAGES = (
    "*.md", ".github/**/*.md", "benchmarks/*.md", "chat_templates/*.md", "deploy/**/*.md", "docs/**/*.md",
    "examples/**/*.md", "gateway/**/*.md", "triton_repo/**/*.md", "deploy/**/*.y*ml", "deploy/**/*.json",
    "docker-compose.yml", "docker/*", ".env.example", "chat_templates/*.jinja", "examples/**/*.y*ml",
    "examples/**/*.py", "Makefile", ".ci/run",
)  # fmt: skip
QUESTION = re.compile(r"(What|Who|Whatever|Whoever|Where|How|Why)\b")
"""A docstring begins with a verb or a noun."""
QUOTED = re.compile(r"``?[^`]+``?|\"[^\"]*\"|\]\([^)]*\)")

PAGE = "gateway/api/page/chat"


@functools.lru_cache(maxsize=1)  # the one that is looked at
def nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Lines of docstrings and comments with their numbers; names of code and quotations are left out."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], CODE.sub("", token.string)
    for node in nodes(source):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number, line in enumerate(node.value.value.splitlines()):
                yield node.lineno + number, CODE.sub("", line)


@functools.cache
def found_in(package: str) -> dict[str, list[str]]:
    """List the faults of a package's docstrings and comments (``prose``), texts, first words, and class names."""
    found: dict[str, list[str]] = {"prose": [], "texts": [], "questions": [], "classes": []}
    for file in sorted((ROOT / package).rglob("*.py")):
        source, place = file.read_text(), file.relative_to(ROOT)
        found["prose"] += [f"{place}:{number}: {line.strip()}" for number, line in prose(source) if is_listed(line)]
        if package in PACKAGES:
            found["questions"] += [f"{place}: {first}" for first in questions(source)]
            found["classes"] += [f"{place}: {name}" for name in everyday_classes(source)]
        found["texts"] += [f"{place}:{number}: {text}" for number, text in texts(source) if is_listed(text)]
    return found


def is_listed(text: str) -> bool:
    return bool(WORDS.search(text) or ONE_WORD.search(text))


@pytest.mark.parametrize("folder", [*SHIPPED, "triton_repo"])
def test_no_listed_word_is_in_texts_for_users_and_operators(folder: str) -> None:
    assert found_in(folder)["texts"] == []


def test_no_listed_word_is_in_texts_of_the_chat_page() -> None:
    files = [each for each in (ROOT / PAGE).iterdir() if each.suffix in {".html", ".js"}]
    lines = [f"{file.name}: {line.strip()}" for file in files for line in file.read_text().splitlines()]
    assert [line for line in lines if is_listed(line)] == []
    assert files


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Strings of code with a blank and their line numbers; docstrings and names of code are left out."""
    docstrings = {id(node.value) for node in nodes(source) if isinstance(node, ast.Expr)}
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = re.sub(r"`[^`]+`", "", node.value)
            if " " in text:
                yield node.lineno, text


def test_listed_words_are_found_in_texts_but_not_in_docstrings() -> None:
    source = '"""Apart."""\n\nTEXT = f"it is refused: {1}"\nNAME = "refused"\n'
    assert [number for number, text in texts(source) if ONE_WORD.search(text)] == [3]


@pytest.mark.parametrize("package", [*PACKAGES, "triton_repo"])
def test_no_listed_word_is_in_docstrings_and_comments(package: str) -> None:
    assert found_in(package)["prose"] == []


def questions(source: str) -> list[str]:
    """First lines of docstrings of modules and functions that begin like a question."""
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in nodes(source) if isinstance(node, kinds)]
    return [text.partition("\n")[0] for text in docstrings if QUESTION.match(text)]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_docstring_begins_like_a_question(package: str) -> None:
    assert found_in(package)["questions"] == []


def test_questions_are_found_in_docstrings_of_functions() -> None:
    source = 'def f():\n    """What it is.\n\n    More.\n    """\n\ndef g():\n    """Whether it is."""\n'
    assert questions(source) == ["What it is."]


LISTED_NAMES = {"told", "nobody", "somebody", "ours", "theirs", "seldom", "apart", "away", "likewise", "besides"}


def listed_names(source: str) -> set[str]:
    """Names of code that have a listed word in them."""
    names = re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r"(?s)\"\"\".*?\"\"\"|\"[^\"\n]*\"|'[^'\n]*'|#[^\n]*", "", source))
    return {name for name in names if LISTED_NAMES & set(name.lower().split("_"))}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_listed_word_is_in_names_of_the_code(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    found = {str(file.relative_to(ROOT)): listed_names(file.read_text()) for file in files}
    assert {place: names for place, names in found.items() if names} == {}


def test_listed_words_are_found_in_names() -> None:
    assert listed_names('self._told = ours  # theirs\nx = "apart"\ngoaway = 1\n') == {"_told", "ours"}


@pytest.mark.parametrize("sentence", ["It answers 503.", "It is answered with status 400.", "An HTTP answer."])
def test_a_server_does_not_answer(sentence: str) -> None:
    assert ONE_WORD.search(sentence)
    assert not ONE_WORD.search("Models answer with text, an answer of 100 tokens takes 3 s, and it responds with 503.")


def everyday_classes(source: str) -> list[str]:
    """Classes whose whole name is an everyday word, and public ones whose whole name is a participle."""
    return [
        node.name
        for node in nodes(source)
        if isinstance(node, ast.ClassDef)
        and (EVERYDAY.fullmatch(node.name) or PARTICIPLE.fullmatch(node.name))
        and node.name not in FIELD_NOUNS
    ]


@pytest.mark.parametrize("package", SHIPPED)
def test_a_class_is_named_by_a_noun(package: str) -> None:
    assert found_in(package)["classes"] == []


def test_everyday_names_are_found() -> None:
    source = "class Asked: ...\nclass _Way: ...\nclass Moving: ...\nclass Setting: ...\nclass PreparedChat: ...\n"
    assert everyday_classes(source) == ["Asked", "_Way", "Moving"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_named_by_a_noun(package: str) -> None:
    names = {file.parent.name for file in (ROOT / package).rglob("__init__.py")}
    assert {name for name in names if name.endswith("ing")} <= {SERVING}


def page_prose(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a page without code blocks, names of code and quotations."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", lambda found: "\n" * found[0].count("\n"), text)
    yield from enumerate((QUOTED.sub("", line) for line in text.splitlines()), start=1)


def test_no_listed_word_is_in_the_docs() -> None:
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern) if page.is_file()})
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()}"
        for page in pages
        for number, line in page_prose(page.read_text(encoding="utf-8"))
        if is_listed(line)
    ]
    assert found == []
    assert len(pages) > 50


def test_the_words_are_found_in_a_page() -> None:
    word = ONE_WORD.pattern.partition("|")[2].partition("|")[0]
    text = f'# T\n\n{word}\n```\n{word}\n```\n`{word}`, "{word}" {word}\n'
    assert [number for number, line in page_prose(text) if ONE_WORD.search(line)] == [3, 7]


def test_the_words_are_found() -> None:
    word = WORDS.pattern.removeprefix(r"\b(").partition("|")[0]
    source = f'"""{word.capitalize()} does."""\n\nX = 1  # by {word}.\nY = "{word}"\n'
    assert [number for number, line in prose(source) if WORDS.search(line)] == [3, 1]
