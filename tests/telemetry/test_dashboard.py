"""The dashboard and the alert rules: each expression is PromQL, over metrics and labels that a gateway has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from gateway.generation.health import READY, STATES
from gateway.generation.route import EndpointStatus
from gateway.http.access.key_metrics import KeyMetrics
from gateway.telemetry.metrics import Metrics, ModelSnapshot, _CurrentState
from tests.app.harness import gateway
from tests.app.scripted import write_tokenizer
from tools.log_events import GROUPS

DEPLOY = Path(__file__).parents[2] / "deploy"
RUNBOOK = DEPLOY.parent / "docs" / "how-to" / "troubleshooting.md"
RULES = DEPLOY / "prometheus" / "rules.yml"
FAILURES = DEPLOY / "prometheus" / "rules_test.yml"
OF_PROMETHEUS = {"instance", "job"}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
TRITON = {
    "nv_trt_llm_request_metrics": {"model", "version", "request_type", "endpoint"},
    "nv_trt_llm_kv_cache_block_metrics": {"model", "version", "kv_cache_block_type", "endpoint"},
}


def labels_of_metrics() -> dict[str, set[str]]:
    """The labels of each sample that a gateway shows, by its name."""
    metrics = Metrics()
    KeyMetrics(metrics.registry)
    found: dict[str, set[str]] = {"up": set()} | {name: set(labels) for name, labels in TRITON.items()}
    for collector in metrics.registry._collector_to_names:
        assert isinstance(collector, MetricWrapperBase)
        for suffix in SUFFIXES[collector._type]:
            found[collector._name + suffix] = {*collector._labelnames, *({"le"} if suffix == "_bucket" else ())}
    endpoint = EndpointStatus("a:1", READY, 0)
    now = ModelSnapshot(running=0, waiting=0, limit=1, endpoints=[endpoint], task="generate")
    for family in _CurrentState({"m": READY}, {"m": now}).collect():
        found[family.name] = set(family.samples[0].labels)
    return found


LABELS = labels_of_metrics()


def expressions() -> Iterator[tuple[str, str]]:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "gateway.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def names_in(node: Any, given: set[str] | None = None) -> Iterator[tuple[str, set[str]]]:
    """Each metric of an expression, with the labels by which it is chosen or put together."""
    used = set(given or ())
    if isinstance(node, promql_parser.VectorSelector):
        yield str(node.name), used | {matcher.name for matcher in node.matchers.matchers}
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql_parser.AggregateExpr) and modifier is not None:
        used |= set(modifier.labels)
    children = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")]
    for child in [*children, *getattr(node, "args", [])]:
        if child is not None:
            yield from names_in(child, used)


def problems(expression: str) -> list[str]:
    """What is wrong with an expression."""
    try:
        parsed = promql_parser.parse(expression.replace("$__rate_interval", "5m"))
    except ValueError as error:
        return [str(error)]
    found = list(names_in(parsed))
    wrong = [f"no metric {name}" for name, _ in found if name not in LABELS]
    return wrong + [
        f"{name} has no label {label}"
        for name, labels in found
        for label in labels - LABELS.get(name, labels) - OF_PROMETHEUS
    ]


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_each_expression_asks_for_what_there_is(name: str, expression: str) -> None:
    assert problems(expression) == []


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("rate(gateway_requests_total[5m)", "unexpected"),
        ("gateway_requests", "no metric gateway_requests"),
        ("sum by (modell) (gateway_requests_in_flight)", "gateway_requests_in_flight has no label modell"),
        ('rate(gateway_inter_token_seconds_bucket{key="a"}[5m])',
         "gateway_inter_token_seconds_bucket has no label key"),
    ],
)  # fmt: skip
def test_what_would_show_nothing_is_found(expression: str, says: str) -> None:
    (problem,) = problems(expression)
    assert says in problem


async def test_a_gateway_s_page_has_what_they_ask_for(tmp_path: Path) -> None:
    async with gateway(write_tokenizer(tmp_path / "bytes")) as running:
        await running.chat()
        page = (await running.client.get("/metrics")).text
    families = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))
    asked = {name for _, expression in expressions() for name in re.findall(r"\bgateway_\w+", expression)}
    of_several = {name for name in asked if name.startswith("gateway_endpoint_")}
    assert len(asked) > 20
    assert {name for name in asked - of_several if name.removesuffix("_bucket") not in families} == set()


def test_a_dashboard_that_is_imported_takes_the_prometheus_that_is_there() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "gateway.json").read_text())
    source, model = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert {each["datasource"]["uid"] for each in (model, *dashboard["panels"])} == {"${datasource}"}


def test_the_page_scrapes_often_enough_for_the_dashboard() -> None:
    """Grafana's rates reach back over one minute, four scrapes of 15 s, unless its source says otherwise."""
    page = (DEPLOY.parent / "docs" / "how-to" / "observability.md").read_text()
    shown = [yaml.safe_load(block) for block in re.findall(r"(?ms)^```yaml\n(.*?)^```$", page)]
    (scraping,) = (block for block in shown if "scrape_configs" in block)
    assert int(scraping["global"]["scrape_interval"].removesuffix("s")) <= 15


def test_each_panel_has_a_place_and_a_number_of_its_own() -> None:
    panels = json.loads((DEPLOY / "grafana" / "dashboards" / "gateway.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_each_alert_leads_to_its_section_of_the_runbook() -> None:
    text = RUNBOOK.read_text()
    sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", text))
    assert list(sections) == list(alerts())
    for name, section in sections.items():
        assert re.findall(r"(?m)^- \*\*(\w+)\*\*: ", section) == ["Means", "See", "Do"], name
        there = f"{{{{ $externalLabels.docs }}}}/how-to/troubleshooting.html#{name.lower()}"
        assert alerts()[name]["annotations"]["runbook_url"] == there
        assert alerts()[name]["labels"]["severity"] in {"critical", "warning"}
        assert alerts()[name]["annotations"]["summary"]


def test_the_runbook_names_metrics_that_there_are() -> None:
    named = set(re.findall(r"\bgateway_[a-z_]+", RUNBOOK.read_text()))
    known = {re.sub("_(bucket|count|sum)$", "", name) for name in LABELS} | {"gateway_kv_cache_usage"}  # of the engines
    assert len(named) > 5
    assert named - known == set()


@pytest.mark.parametrize("page", ["how-to/troubleshooting", "explanation/reliability"])
def test_the_tables_of_states_have_each_state(page: str) -> None:
    text = (DEPLOY.parent / "docs" / f"{page}.md").read_text()
    (table,) = re.findall(r"(?m)^\| state \| means .*\n((?:\|.*\n)+)", text)
    assert list(dict.fromkeys(re.findall(r"(?m)^\| `(\w+)`", table))) == list(STATES)


def test_the_runbook_names_events_that_there_are() -> None:
    named = set(re.findall(r"\bevents? (`\w+`(?:(?:, | and |, and )`\w+`)*)", RUNBOOK.read_text()))
    words = {word for each in named for word in re.findall(r"`(\w+)`", each)}
    assert len(words) > 10
    assert words - {name for events in GROUPS.values() for name in events} == set()


def test_each_alert_has_a_failure_that_it_fires_in() -> None:
    """And the series of that failure are those of a gateway."""
    situations = yaml.safe_load(FAILURES.read_text())["tests"]
    series = {each["series"] for situation in situations for each in situation["input_series"]}
    assert [found for each in series for found in problems(each)] == []
    checks = [check for situation in situations for check in situation["promql_expr_test"]]
    expected = [sample["labels"] for check in checks for sample in check.get("exp_samples", ())]
    assert set(re.findall(r'alertname="(\w+)"', "".join(expected))) == set(alerts())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, of Prometheus, is not installed")
@pytest.mark.parametrize(("what", "file"), [("check", RULES), ("test", FAILURES)])
def test_promtool_takes_the_rules(what: str, file: Path) -> None:
    done = subprocess.run(["promtool", what, "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
