"""The documentation as a site: settings of Sphinx, which builds ``docs/`` as it is (``make site``).

The order of the pages and ``llms.txt`` come from ``docs/index.md``. Links out of ``docs/`` lead to the repository
where ``SOURCE_URL`` names its address on the web; without one they are words.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx

project = "Triton OpenAI gateway"
author = "its maintainers"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_title = project
html_copy_source = True
html_sourcelink_suffix = ""
html_show_sphinx = False
templates_path: list[str] = []
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # JSON with an ellipsis is none

_SOURCE_URL = os.environ.get("SOURCE_URL", "").rstrip("/")
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)((?:#[^)\s]*)?)\)")
_PAGE = re.compile(r"\[([^\]]+)\]\(([\w/-]+)\.md\)")


def read_source(_: Sphinx, page: str, text: list[str]) -> None:
    """Have links out of ``docs/`` lead to the repository, and give the index its trees of pages."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/"):
            return found[0]
        return f"[{words}]({_SOURCE_URL}/blob/HEAD/{path}{anchor})" if _SOURCE_URL else words

    text[0] = _LINK.sub(link, text[0])
    if page == root_doc:
        text[0] = "".join(part + _tree(part) for part in re.split(r"(?m)^(?=## )", text[0]))


def _tree(section: str) -> str:
    pages = [f"{title} <{page}>" for title, page in _PAGE.findall(section)]
    if not pages:
        return ""
    lines = [f":caption: {section.splitlines()[0].removeprefix('## ')}", ":hidden:", "", *pages]
    return "\n```{toctree}\n" + "\n".join(lines) + "\n```\n\n"


def write_llms_txt(app: Sphinx, failure: Exception | None) -> None:
    """Write the index for language models: the same, with links to the sources of the pages."""
    if failure is None:
        index = (Path(app.srcdir) / "index.md").read_text(encoding="utf-8")
        index = index.replace("# Documentation\n\n", f"# {project}\n\n> ", 1)
        index = index.replace("[README](../README.md)", "README")
        (Path(app.outdir) / "llms.txt").write_text(_PAGE.sub(r"[\1](_sources/\2.md)", index), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect both; called by Sphinx."""
    app.connect("source-read", read_source)
    app.connect("build-finished", write_llms_txt)
