"""The documentation as a site: settings of Sphinx, which builds ``docs/`` as it is (``make site``).

The sidebar and ``llms.txt`` come from ``docs/index.md``: its sections are the parts; pages that are listed below a
page are folded. Links out of ``docs/`` lead to the repository where ``SOURCE_URL`` names its address on the web;
without one they are words. A link whose words are the name of a file has the page's title.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

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
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
suppress_warnings = ["misc.highlighting_failure"]  # JSON with an ellipsis is none

_SOURCE_URL = os.environ.get("SOURCE_URL", "").rstrip("/")
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)((?:#[^)\s]*)?)\)")
_PAGE = re.compile(r"\[([^\]]+)\]\(([\w/-]+)\.md\)")
_ITEM = re.compile(rf"(?m)^( *)- {_PAGE.pattern}.*$")
# Former pages whose content is in another one, by their latest address, with the heading that has it. Pages once lay
# without the first folder of their address; those addresses lead on as well.
_CLIENTS = "how-to/clients/README"
_AGENTS = "how-to/clients/coding-agents"
_MERGED = {
    "contributing/relay": "contributing/internals#the-relay",
    "contributing/writing-tests": "contributing/how-to#write-a-test",
    "explanation/long-prompts": "contributing/internals#a-long-prompt",
    "explanation/transports": "explanation/reliability#transports",
    "how-to/clients/ai-sdk": f"{_CLIENTS}#ai-sdk",
    "how-to/clients/anthropic-sdk": f"{_CLIENTS}#anthropics-sdks",
    "how-to/clients/claude-code": f"{_AGENTS}#claude-code",
    "how-to/clients/codex": f"{_AGENTS}#codex",
    "how-to/clients/continue": f"{_AGENTS}#continue",
    "how-to/clients/frameworks": f"{_CLIENTS}#langchain",
    "how-to/clients/langchain": f"{_CLIENTS}#langchain",
    "how-to/clients/languages": f"{_CLIENTS}#go-java-and-c",
    "how-to/clients/open-webui": f"{_CLIENTS}#open-webui",
    "how-to/clients/openai-agents": f"{_CLIENTS}#openais-agents-sdk",
    "how-to/clients/openai-sdk": f"{_CLIENTS}#openais-sdks",
    "how-to/clients/opencode": f"{_AGENTS}#opencode",
    "how-to/clients/other-programs": f"{_CLIENTS}#other-programs",
    "how-to/clients/pydantic-ai": f"{_CLIENTS}#pydantic-ai",
    "how-to/clients/sdks": f"{_CLIENTS}#openais-sdks",
    "how-to/compare": "how-to/migration#compare-two-models-or-servers",
    "how-to/engines": "how-to/deployments#engines",
    "how-to/graceful-shutdown": "explanation/reliability#workers-and-graceful-shutdown",
    "how-to/load-testing": "how-to/fleet-sizing#load-test",
    "how-to/record-and-replay": "how-to/troubleshooting#record-and-replay",
    "how-to/runbook": "how-to/troubleshooting",
    "how-to/stored-responses": "reference/responses#the-store",
    "how-to/terminal": "how-to/page#in-the-terminal",
    "how-to/tls": "how-to/keys#tls-and-mtls",
    "how-to/workers": "explanation/reliability#workers",
    "reference/conversations": "reference/responses#conversations",
    "reference/coverage": "reference/served",
    "reference/deployment-options": "reference/configuration#options-of-a-deployment",
    "reference/dialects": "reference/served",
    "reference/versions": "reference/served#versions",
}
_REDIRECT = """\
<!DOCTYPE html>
<meta charset="utf-8">
<title>Moved</title>
<script>location.replace("{page}.html" + (location.hash || "{anchor}"))</script>
<a href="{page}.html{anchor}">Moved</a>
"""


def read_source(app: Sphinx, page: str, text: list[str]) -> None:
    """Have links out of ``docs/`` lead to the repository, name pages by their titles, and give pages their trees."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if not path.startswith("docs/"):
            return f"[{words}]({_SOURCE_URL}/blob/HEAD/{path}{anchor})" if _SOURCE_URL else words
        if words == posixpath.basename(target):
            words = (Path(app.srcdir).parent / path).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        return f"[{words}]({target}{anchor})"

    text[0] = _LINK.sub(link, text[0])
    index = (Path(app.srcdir) / f"{root_doc}.md").read_text(encoding="utf-8")
    if page == root_doc:
        text[0] = "".join(part + _tree("", part) for part in re.split(r"(?m)^(?=## )", text[0]))
    else:
        text[0] += _tree(page, index)


def _tree(parent: str, section: str) -> str:
    """The tree of the pages that a section of the index lists: those at its margin, or those below a page."""
    above, pages = "", []
    for indent, title, page in _ITEM.findall(section):
        above = above if indent else page
        if parent == (above if indent else ""):
            pages.append(f"{title} <{page if not parent else posixpath.relpath(page, posixpath.dirname(parent))}>")
    if not pages:
        return ""
    caption = [] if parent else [f":caption: {section.splitlines()[0].removeprefix('## ')}"]
    return "\n".join(["\n```{toctree}", *caption, ":hidden:", "", *pages, "```\n\n"])


def write_others(app: Sphinx, failure: Exception | None) -> None:
    """Write the index for language models, with links to the sources of the pages, and redirects of former pages."""
    if failure is not None:
        return
    site = Path(app.outdir)
    index = (Path(app.srcdir) / f"{root_doc}.md").read_text(encoding="utf-8")
    pages = [page for _, _, page in _ITEM.findall(index)]
    index = index.replace("# Documentation\n\n", f"# {project}\n\n> ", 1).replace("[README](../README.md)", "README")
    (site / "llms.txt").write_text(_PAGE.sub(r"[\1](_sources/\2.md)", index), encoding="utf-8")
    moved = {page: page for page in pages} | _MERGED
    former = {address.partition("/")[2]: page for address, page in moved.items()} | _MERGED
    for address, page in former.items():
        _redirect(site, address, page)


def _redirect(site: Path, former: str, page: str) -> None:
    """Write the page at a former address, unless there is one, that leads to ``page``, which may name a heading."""
    place = site / f"{former}.html"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        path, mark, heading = page.partition("#")
        path = posixpath.relpath(path, posixpath.dirname(former) or ".")
        place.write_text(_REDIRECT.format(page=path, anchor=mark + heading), encoding="utf-8")


class StatusSearch(SearchEnglish):  # type: ignore[misc]  # Sphinx is in an environment of its own
    """Search that finds HTTP statuses, too: Sphinx leaves numbers out, so 429 is ``_429`` in pages and queries."""

    js_splitter_code = (
        "var splitQuery = (query) => query.replace(/\\b([45]\\d\\d)\\b/g, '_$1')"
        ".split(/[^\\p{Letter}\\p{Number}_]+/gu).filter((word) => word);"
    )

    def split(self, text: str) -> list[str]:
        """The words of a page."""
        words: list[str] = super().split(re.sub(r"\b([45]\d\d)\b", r"_\1", text))
        return words


def setup(app: Sphinx) -> None:
    """Connect both, and the search; called by Sphinx."""
    app.add_search_language(StatusSearch)
    app.connect("source-read", read_source)
    app.connect("build-finished", write_others)
