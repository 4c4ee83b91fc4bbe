"""The documentation as a site: pages are in the index, it needs nothing but itself, and its search finds words."""

from __future__ import annotations

import functools
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.clients.page.browser import Browser
from tests.npm import UnavailableError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)|<link(?=[^>]* rel=\"stylesheet)[^>]* href=\"([^\"]+)")
_MOVED = re.compile(r'<a href="([^"#]+)#?([^"]*)">Moved</a>')
FIRST_RESULTS = 6
# Words that are in a reader's mind, and the page that they are to find.
WORDS = {
    "429": "how-to/keys",
    "API key": "how-to/keys",
    "autoscaling": "tutorials/production-on-kubernetes",
    "benchmark": "how-to/fleet-sizing",
    "blue green rollout": "explanation/reliability",
    "canary": "explanation/reliability",
    "cancel": "reference/glossary",
    "circuit breaker": "explanation/reliability",
    "Claude Code": "how-to/clients/coding-agents",
    "CORS": "reference/api",
    "Docker": "how-to/deploy-compose",
    "embeddings": "reference/embeddings",
    "function calling": "reference/tools",
    "GPU memory": "how-to/deployments",
    "graceful shutdown": "explanation/reliability",
    "Grafana": "how-to/observability",
    "health check": "explanation/reliability",
    "Helm": "how-to/kubernetes",
    "installation": "how-to/upgrading",
    "JSON schema": "reference/tools",
    "Kubernetes": "how-to/kubernetes",
    "KV cache": "reference/model-repository",
    "LangChain": "how-to/clients/README",
    "latency": "how-to/fleet-sizing",
    "load balancing": "explanation/reliability",
    "logprobs": "reference/parameters",
    "LoRA": "how-to/adapters",
    "mirror": "how-to/migration",
    "mTLS": "how-to/keys",
    "OIDC": "how-to/keys",
    "OpenTelemetry": "how-to/observability",
    "Prometheus": "how-to/observability",
    "proxy": "reference/configuration",
    "quantization": "reference/glossary",
    "quickstart": "tutorials/first-answer",
    "RAG": "tutorials/rag",
    "rate limit": "how-to/keys",
    "readiness": "explanation/reliability",
    "reasoning": "reference/tools",
    "rerank": "tutorials/rag",
    "retry": "explanation/reliability",
    "runbook": "how-to/troubleshooting",
    "Slurm": "how-to/launch",
    "speculative decoding": "how-to/adapters",
    "streaming": "tutorials/first-answer",
    "structured output": "reference/tools",
    "throughput": "how-to/fleet-sizing",
    "timeout": "reference/configuration",
    "timeouts": "reference/configuration",
    "TLS": "how-to/keys",
    "tool calling": "reference/tools",
    "tracing": "how-to/observability",
    "troubleshooting": "how-to/troubleshooting",
    "TTFT": "how-to/fleet-sizing",
    "usage": "reference/glossary",
    "WebSocket": "reference/api",
}


def test_every_page_is_in_the_index_once() -> None:
    listed = re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(listed) == sorted(pages)


@pytest.fixture(scope="module")
def site() -> Path:
    build = ["make", "-s", "site", "SOURCE=https://git.example/owner/gateway.git"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=600)
    return ROOT / "build" / "site"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site's address while it is served."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Keep silent."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Let the browser leave a page whose parts it has asked for."""

    with Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with Browser() as started:
            started.open("about:blank")
            yield started
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.long
def test_the_site_is_built_without_a_warning(site: Path) -> None:
    """A link that leads nowhere is a warning, and a warning is an error."""
    pages = {page.relative_to(site): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert {page.with_suffix(".html") for page in (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))} <= set(pages)
    foreign = [found for text in pages.values() for found in _LOADED.findall(text) if "//" in "".join(found)]
    assert foreign == []
    assert 'href="https://git.example/owner/gateway/blob/HEAD/README.md"' in pages[Path("index.html")]
    # A link by the name of a file has the title of its page.
    assert ">how-to/keys.md<" not in "".join(pages.values())
    index = (site / "llms.txt").read_text(encoding="utf-8")
    assert index.startswith("# Triton OpenAI gateway\n\n> For everyone")
    linked = re.findall(r"\]\(([^)]+)\)", index)
    assert len(linked) == len(list(DOCS.rglob("*.md"))) - 1
    assert [name for name in linked if not (site / name).is_file()] == []


@pytest.mark.long
def test_the_link_of_each_alert_and_each_link_of_its_page_open_a_section(site: Path) -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    label = "{{ $externalLabels.docs }}/"
    links = [
        rule["annotations"]["runbook_url"].removeprefix(label) for each in rules["groups"] for rule in each["rules"]
    ]
    page = site / "how-to" / "troubleshooting.html"
    links += [
        str((page.parent / link).resolve().relative_to(site))
        for link in re.findall(r'href="((?:\.\./)*[\w/.-]*\.html#[^"]+)"', page.read_text(encoding="utf-8"))
    ]
    lost = [
        f"{file}#{name}"
        for file, _, name in (link.partition("#") for link in links)
        if f'id="{name}"' not in (site / file).read_text(encoding="utf-8")
    ]
    assert lost == []
    assert len(links) > 60


@pytest.mark.long
def test_a_former_address_leads_to_the_page_and_the_heading(site: Path) -> None:
    moved = {page: _MOVED.search(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    lost = []
    for page, found in moved.items():
        if found:
            target = page.parent / found[1]
            if not target.is_file() or (found[2] and f'id="{found[2]}"' not in target.read_text(encoding="utf-8")):
                lost.append((page, found[0]))
    assert lost == []
    for former in ("runbook", "how-to/tls", "tls", "how-to/clients/langchain", "clients/codex", "clients/README"):
        assert moved[site / f"{former}.html"], former


@pytest.mark.long
def test_the_search_finds_the_words_of_the_trade(address: str, browser: Browser) -> None:
    lost = {}
    for word, page in WORDS.items():
        opened = browser.open(f"{address}/search.html?q={quote(word)}")
        opened.until("document.querySelector('#search-results .search-summary')?.textContent.includes('found')")
        found = opened.value("[...document.querySelectorAll('ul.search li > a')].map((each) => each.pathname)")
        places = list(dict.fromkeys(each.strip("/").removesuffix(".html") for each in found))
        if page not in places[:FIRST_RESULTS]:
            lost[word] = places[:FIRST_RESULTS]
        assert [each for each in opened.problems() if each.startswith("asked")] == []
    assert lost == {}
    assert len(WORDS) > 30


@pytest.mark.long
@pytest.mark.parametrize("page", ["index", "reference/configuration", "reference/served", "how-to/troubleshooting"])
def test_a_page_fits_a_phone(address: str, browser: Browser, page: str) -> None:
    opened = browser.open(f"{address}/{page}.html", viewport={"width": 360, "height": 740})
    assert opened.value("document.documentElement.scrollWidth") == 360
    assert not opened.value("document.querySelector('.sidebar-drawer').getBoundingClientRect().right > 0")
    opened.click("label.nav-overlay-icon:visible")
    opened.until("document.querySelector('.sidebar-drawer').getBoundingClientRect().left === 0")
    clients = "[...document.querySelectorAll('.sidebar-tree a')].find((each) => each.textContent === 'Coding agents')"
    assert opened.value(f"{clients}.getBoundingClientRect().height") == 0, "clients are folded"
