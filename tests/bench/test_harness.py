"""What the benchmarks make of their results, the answers of their features, and the pace of their engines."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import (
    answers,
    cores,
    features,
    relay,
    renderings,
    request_cost,
    scaling,
    store,
    tables,
    workers,
)
from benchmarks.harness.features import FEATURES
from benchmarks.harness.load import Load
from benchmarks.harness.peers import comparison
from benchmarks.harness.peers.pace import Pace, token_id
from benchmarks.harness.peers.peer import Peer
from benchmarks.harness.processes import ROOT, BenchmarkError
from benchmarks.harness.request_cost import NAIVE, Turn
from benchmarks.harness.subjects import Subject, transports
from gateway.text.families import CallArguments, CallStart, Content, Event, Reasoning, Tool, ToolPlan
from gateway.text.families.family_table import FAMILIES
from gateway.text.tokens import Tokenizer


def test_the_last_line_compares_the_default_transport_on_tokens() -> None:
    default = transports()[0]
    ours = Subject("gateway", "tokens", default).name
    load = {ours: {"cpu_us": 50.0}, "naive tokens": {"cpu_us": 200.0}, "naive text": {"cpu_us": 1.0}}
    ratios = {name: relay._ratio(load, default) for name in ("64x20ms", "256x10ms", "burst")}
    assert relay.last_line({"ratios": ratios}) == "cpu_per_token_vs_naive 64x20ms=0.25 256x10ms=0.25 burst=0.25"


def test_results_go_between_their_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results: lag -->\nold\n<!-- end: lag -->\nafter\n")
    monkeypatch.setattr(tables, "_README", readme)
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    monkeypatch.setattr(tables, "write_plots", lambda: None)
    rows = [{"transport": "grpcio", "what": r"text \1", "worst_ms": 3.5}]
    store.save("lag", "make bench MODE=lag", {"prompt_tokens": 1, "rows": rows})
    tables.write_readme()
    tables.write_readme()
    text = readme.read_text()
    assert text.startswith("before\n<!-- results: lag -->\n\n`make bench MODE=lag`")
    assert text.endswith("<!-- end: lag -->\nafter\n")
    assert text.count(r"| grpcio | text \1 |  |  | 3.5 |") == 1
    assert "old" not in text


@pytest.mark.parametrize(
    ("figures", "limit"),
    [
        ({"tokens_s": 980, "busy": 3.9, "others_busy": 3.9, "others_busiest": 1.0}, "offer"),
        ({"tokens_s": 500, "busy": 1.9, "others_busy": 1.0, "others_busiest": 0.5}, "workers"),
        ({"tokens_s": 500, "busy": 3.9, "others_busy": 1.0, "others_busiest": 0.5, "workers": 8}, "gateway's cores"),
        ({"tokens_s": 500, "busy": 1.0, "others_busy": 1.0, "others_busiest": 0.9}, "load"),
        ({"tokens_s": 500, "busy": 1.0, "others_busy": 3.8, "others_busiest": 0.6}, "load"),
        ({"tokens_s": 500, "busy": 1.0, "others_busy": 1.0, "others_busiest": 0.5}, "unclear"),
    ],
)
def test_a_limit_is_what_is_fullest_unless_all_is_carried(figures: dict[str, float], limit: str) -> None:
    assert workers._limit({"offered_s": 1000, "workers": 2, **figures}, 4, 4) == limit


def test_workers_are_compared_with_one_of_the_same_turn_and_load() -> None:
    figures = {"cpu_ms": 1.0, "apart_cpu_ms": 1.0, "least_share": 1.0, "most_share": 1.0}
    turns = [  # the machine gets twice as slow, and as fast as before
        {count: {**figures, "requests_s": count * speed, "apart_requests_s": 2 * count * speed,
                 "reference_ms": 9 / speed} for count in (1, 4)}
        for speed in (100.0, 50.0, 100.0)
    ]  # fmt: skip
    row = scaling.row(4, turns)
    assert (row["of_one"], row["apart_of_one"], row["over_apart"], row["reference_of_one"]) == (1.0, 1.0, 0.5, 1.0)
    rows = [
        {"transport": "h2", "workers": workers, "load": "x", "streams_each": 512, "offered_s": 9, "tokens_s": tokens,
         "cpu_us": 1.0, "busy": 1.0, "others_busy": 1.0, "limit": "offer"}
        for workers, tokens in ((1, 100.0), (4, 300.0))
    ]  # fmt: skip
    values = {"gateway_cores": 8, "other_cores": 8, "generators": 4, "tritons": 16, "rounds": 3, "rows": rows}
    assert "| 300 | 0.75 |" in renderings.workers(values)


def test_the_gateway_and_its_load_share_no_core_where_there_are_two() -> None:
    gateway, others = cores.split()
    assert set(gateway) | set(others) == os.sched_getaffinity(0)
    assert len(set(gateway) & set(others)) == (1 if os.sched_getaffinity(0) == set(gateway) else 0)


def test_requests_are_compared_within_a_turn_as_the_machine_changes_between_turns() -> None:
    ours = Subject("gateway", "tokens", "h2").name
    turns = [  # the machine gets twice as slow, then thrice; what was measured last is a stroke of luck for the naive
        Turn({NAIVE: 2.0, ours: 1.0}, {NAIVE: 10.0, ours: 10.0}, 0.25),
        Turn({NAIVE: 4.0, ours: 2.0}, {NAIVE: 20.0, ours: 20.0}, 0.5),
        Turn({NAIVE: 3.0, ours: 3.0}, {NAIVE: 20.0, ours: 30.0}, 0.75),
    ]
    found = request_cost.summary(turns)
    assert found["preparation_ms"] == 0.5
    assert found["reference_ms"] == {"median": 20.0, "least": 10.0, "most": 30.0}
    row = found["subjects"][ours]
    assert (row["cpu_ms"], row["cpu_ms_least"], row["cpu_ms_most"]) == (2.0, 1.0, 3.0)
    assert (row["of_naive"], row["references"], row["beyond_preparation_ms"]) == (0.5, 0.1, 1.5)
    assert found["subjects"][NAIVE]["beyond_preparation_ms"] is None


def test_the_factor_of_a_feature_is_of_the_same_round() -> None:
    runs = [{"plain": 100.0, "tools": 120.0}, {"plain": 200.0, "tools": 240.0}, {"plain": 150.0, "tools": 300.0}]
    assert features.factor(runs, "tools", "plain") == 1.2


def test_embeddings_are_held_to_their_first_measurement() -> None:
    """The figures of the page hold the bounds that it names; slower ones are called missed."""
    block = (ROOT / "benchmarks" / "README.md").read_text().partition("<!-- results: embeddings -->")[2]
    block = block.partition("<!-- end: embeddings -->")[0]
    cpu = {name: float(us) for name, us in re.findall(r"(?m)^\| (\D.*) \| (\d+) \|$", block)}
    values = {"rounds": 3, "workers": 4, "cpu_us": cpu, "delays_us": {}}
    (held,) = re.findall(r"(?m)^CPU of a request .*$", renderings.embeddings(values))
    assert (held in block, held.count("held"), held.count("missed")) == (True, 2, 0)
    for factor, missed in ((1.11, 1), (3, 2)):
        slower = {**values, "cpu_us": {**cpu, "gateway, base64": factor * cpu["gateway, base64"]}}
        assert renderings.embeddings(slower).count(": missed)") == missed


TOKENS = 400  # the tiny tokenizer needs many for a tag


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_model_dir)


def read(family: str, answer: answers.Answer, tokenizer: Tokenizer) -> list[Event]:
    turn = ToolPlan((Tool("weather"),), "auto")
    parser = FAMILIES[family].parser(turn, FAMILIES[family].prepare(turn), "")
    return [*parser.feed(tokenizer.decode(answer.ids)), *parser.finish(cut=True)]


def test_a_call_is_whole_and_behind_text(tokenizer: Tokenizer) -> None:
    answer = answers.call(tokenizer, TOKENS)
    assert len(answer.ids) == TOKENS
    assert answer.events == TOKENS // 2
    content, start, *rest = read("hermes", answer, tokenizer)
    assert isinstance(content, Content)
    assert isinstance(start, CallStart)
    arguments = "".join(each.text for each in rest if isinstance(each, CallArguments))
    assert set(json.loads(arguments)) == {"city"}


def test_half_of_a_reasoning_answer_is_reasoning(tokenizer: Tokenizer) -> None:
    answer = answers.reasoning(tokenizer, TOKENS)
    assert len(answer.ids) == TOKENS
    reasoning, content = read("qwen3", answer, tokenizer)
    assert isinstance(reasoning, Reasoning)
    assert isinstance(content, Content)
    assert len(reasoning.text) == pytest.approx(len(content.text), rel=0.25)
    assert answer.events < TOKENS  # the tags are not shown


def test_prose_holds_neither_calls_nor_reasoning(tokenizer: Tokenizer) -> None:
    answer = answers.prose(tokenizer, TOKENS)
    assert len(answer.ids) == answer.events == TOKENS
    assert read("qwen3", answer, tokenizer) == [Content(tokenizer.decode(answer.ids))]


def test_features_go_to_families_that_there_are() -> None:
    assert {feature.family for feature in FEATURES.values()} - {""} <= set(FAMILIES)


OURS = Subject("gateway", "tokens", transports()[0]).name


def row(cpu_us: float, **more: Any) -> dict[str, Any]:
    spread = {"cpu_us": cpu_us, "cpu_us_least": cpu_us - 1, "cpu_us_most": cpu_us + 1}
    return {**spread, "tokens_s": 3100.0, "first_p50": 30_400.0, "first_p99": 45_600.0, **more}


def test_a_ratio_is_taken_where_both_carried_answers_of_one_length() -> None:
    loads = {
        "64x20ms": {OURS: row(30.0), "Dynamo": row(60.0), "LiteLLM": row(900.0, tokens=30)},
        "burst": {OURS: row(10.0), "Dynamo": {"failed": "burst: refused"}, "LiteLLM": row(600.0, tokens=60)},
    }
    assert comparison.ratios(loads, "Dynamo") == {"64x20ms": 0.5}
    assert comparison.ratios(loads, "LiteLLM") == {}


def test_a_failed_run_leaves_a_gateway_out_of_the_rest_of_that_load(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def rejects(child: object, load: Load, body: object) -> None:
        asked.append(load.tokens)
        raise BenchmarkError("64x20ms: not every answer was whole: bad=64\nmore")

    monkeypatch.setattr(comparison, "run", rejects)
    monkeypatch.setattr(comparison, "body", lambda _: None)
    slow = Peer("LiteLLM", "1.0", None, lambda _: None, "", "", slow=True)  # type: ignore[arg-type]
    rows = comparison._interleaved([slow], Load("64x20ms", 64, 20_000, 150), 3, lambda _: None)
    assert rows == {"LiteLLM": {"failed": "64x20ms: not every answer was whole: bad=64"}}
    assert asked == [30]  # a slow one gets a fifth of the tokens


async def test_an_engine_waits_before_each_token_as_the_synthetic_triton_does() -> None:
    pace = Pace()
    pace.delay_s = 0.03
    clock = asyncio.get_running_loop().time
    begun = clock()
    times = [clock() - begun async for _ in pace.count(3)]
    assert all(time >= 0.03 * (index + 1) - 0.002 for index, time in enumerate(times))
    pace.delay_s = 0.0
    assert [index async for index in pace.count(3)] == [0, 1, 2]
    assert [token_id(index) for index in (0, 63, 64)] == [1000, 1063, 1000]
