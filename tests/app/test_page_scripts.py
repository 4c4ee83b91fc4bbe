"""What the chat page makes of a model's text: its own Markdown, and nothing that runs, whichever way it is streamed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.api.page import routes
from tests.app.hostile_markdown import HOSTILE

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
Run = Callable[[str, list[Any]], list[Any]]
TAGS = {
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"className", "href", "title", "target", "rel", "start", "type", "role", "aria-label"}
LINK = {"target": "_blank", "rel": "noopener noreferrer"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a task of ``page_scripts.mjs`` for each of a list."""
    folder = tmp_path_factory.mktemp("page") / "chat"
    shutil.copytree(Path(routes.__file__).parent / "chat", folder)
    (folder / "package.json").write_text('{"type": "module"}')

    def run_task(task: str, given: list[Any]) -> list[Any]:
        command = ["node", str(Path(__file__).with_name("page_scripts.mjs")), str(folder)]
        asked = json.dumps([[task, one] for one in given])
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    return run_task


def node(tag: str, *children: Any, **given: Any) -> list[Any]:
    return [tag, given, *children]


def p(*children: Any) -> list[Any]:
    return node("p", *children)


def link(address: str, *children: Any, **more: str) -> list[Any]:
    return node("a", *children, **more, href=address, title=address, **LINK)


def elements(nodes: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in nodes:
        if isinstance(node, list):
            yield node[0], node[1]
            yield from elements(node[2:])


HEAD = node("thead", node("tr", node("th", "a", className="center"), node("th", "b", className="right")))
CELLS = [node("td", "1 | 2", className="center"), node("td", node("strong", "3"), className="right"), node("td", "4")]
TABLE = node("table", HEAD, node("tbody", node("tr", *CELLS)))
BLOCKS: dict[str, list[Any]] = {
    "# One ##\ntext": [node("h3", "One"), p("text")],
    "####### seven": [p("####### seven")],
    "a\nb\n\nc": [p("a\nb"), p("c")],
    "a\n***\nb": [p("a"), node("hr"), p("b")],
    "> a\nb\n> > c\n\nd": [node("blockquote", p("a\nb"), node("blockquote", p("c"))), p("d")],
    "- a\n  - b\n\n    c\n* d": [
        node("ul", node("li", p("a"), node("ul", node("li", p("b"), p("c"))))),
        node("ul", node("li", p("d"))),
    ],
    "Two:\n1. a\n\n2. b\nmore": [p("Two:"), node("ol", node("li", p("a")), node("li", p("b\nmore")), start=1)],
    "It was in\n1999. Or later.": [p("It was in\n1999. Or later.")],
    "| a | b |\n|:-:|--:|\n| 1 \\| 2 | **3** | 4 |\nend": [
        node("div", TABLE, role="region", className="table", **{"aria-label": "Table"}),
        p("end"),
    ],
    "no | table\n---": [p("no | table"), node("hr")],
}
WORDS: dict[str, list[Any]] = {
    "*a* _b_ **c** __d__ ***e*** ~~f~~": [
        ["em", {}, "a"], " ", ["em", {}, "b"], " ", ["strong", {}, "c"], " ", ["strong", {}, "d"], " ",
        ["strong", {}, ["em", {}, "e"]], " ", ["del", {}, "f"],
    ],
    "2 * 3 * 4, snake_case_name, a ** b": ["2 * 3 * 4, snake_case_name, a ** b"],
    "**open *and": ["**open *and"],
    "*a **b*": [["em", {}, "a **b"]],
    "`a*b*` `` c`d `` `open": [["code", {}, "a*b*"], " ", ["code", {}, "c`d"], " `open"],
    r"\*a\* \q \\": ["*a* \\q \\"],
    "a<br>b<br/>": ["a", ["br", {}], "b", ["br", {}]],
    "[a **b**](https://x.example/(1) 'T') [1] [x](": [
        link("https://x.example/(1)", "a ", ["strong", {}, "b"]), " [1] [x](",
    ],
    "<https://x.example/a> <mailto:a@x.example>": [
        link("https://x.example/a", "https://x.example/a"), " ", link("mailto:a@x.example", "mailto:a@x.example"),
    ],
    "(see https://x.example/a_(b)), or http://y.example.": [
        "(see ", link("https://x.example/a_(b)", "https://x.example/a_(b)"), "), or ",
        link("http://y.example/", "http://y.example"), ".",
    ],
    "[https://x.example](https://x.example)": [link("https://x.example/", "https://x.example")],
    "![a cat](https://x.example/cat.png)": [link("https://x.example/cat.png", "a cat", className="image")],
    "![](https://x.example/cat.png)": [
        link("https://x.example/cat.png", "https://x.example/cat.png", className="image"),
    ],
    "[![b](https://x.example/b.svg)](https://y.example/)": [link("https://y.example/", "b")],
    "[a](/relative) [b](ftp://x.example)": ["[a](/relative) [b](ftp://x.example)"],
}  # fmt: skip


def test_blocks(run: Run) -> None:
    made = run("render", [[source] for source in BLOCKS])
    assert {source: one["whole"] for source, one in zip(BLOCKS, made, strict=True)} == BLOCKS


def test_what_stands_in_a_line(run: Run) -> None:
    made = run("render", [[source] for source in WORDS])
    assert {source: one["whole"] for source, one in zip(WORDS, made, strict=True)} == {
        source: [p(*words)] for source, words in WORDS.items()
    }


def test_code_keeps_every_character_and_has_a_button(run: Run) -> None:
    code = "def f(x):\n\n\n    return '*x*' # <b> [a](https://b)\n"
    listed = textwrap.indent(f"```python\n{code}```", "   ")
    sources = [f"```python title\n{code}```\nafter", f"~~~\n{code}", f"1. a\n{listed}\n2. b"]
    fenced, unclosed, within = (one["whole"] for one in run("render", [[source] for source in sources]))
    head = node("div", node("span", "python"), node("button", "Copy", type="button"))
    assert fenced == [node("div", head, node("pre", node("code", code)), className="fence"), p("after")]
    assert unclosed[0][-1] == node("pre", node("code", code))
    assert within == [node("ol", node("li", p("a"), fenced[0]), node("li", p("b")), start=1)]


SAMPLE = "".join(f"{source}\n\n" for source in (*BLOCKS, *WORDS, "```\nlet a;\n\nlet b;\n```"))


def test_a_stream_comes_to_the_same_wherever_it_is_split(run: Run) -> None:
    parts = [[SAMPLE[at : at + size] for at in range(0, len(SAMPLE), size)] for size in (1, 2, 3, 7, 50)]
    for made in run("render", parts):
        assert made["grown"] == made["end"] == made["whole"]
        assert made["places"]


def test_only_the_last_blocks_of_a_stream_are_made_anew(run: Run) -> None:
    (found,) = run("cost", [["one two\n\n"] * 200])
    assert max(found["made"]) <= 3


PIECES = (
    "*a ", "**a", "[", "![a](", "`a``", "> ", "- ", "  ", "| a ", "#", "\\", '](x "', "_a_ ", "https://x.example/)",
    "<", "~~a", "1. a\n", "| a |\n|---|\n", "* * * x",
)  # fmt: skip


def test_no_text_takes_long(run: Run) -> None:
    for piece, found in zip(PIECES, run("cost", [[piece * (50_000 // len(piece))] for piece in PIECES]), strict=True):
        assert found["ms"] < 3000, piece


def test_no_hostile_text_becomes_more_than_text_and_safe_links(run: Run) -> None:
    assert len(HOSTILE) >= 60
    for made in run("render", [*map(list, HOSTILE), *([source[:9], source[9:]] for source in HOSTILE)]):
        for tag, given in (*elements(made["grown"]), *elements(made["end"])):
            assert tag in TAGS
            assert set(given) <= ATTRIBUTES
            if tag == "a":
                assert re.match(r"(?:https?://|mailto:)[^<>\"\s]+$", given["href"])
                assert given.items() >= LINK.items()


def test_the_cosine_of_two_vectors(run: Run) -> None:
    found = run("cosine", [[[1, 0], [0, 2]], [[3, 4], [6, 8]], [[1, 2], [-1, -2]]])
    assert found == pytest.approx([0, 1, -1])
