"""Live requests are copied to a second model, and nobody who asks the first one can tell."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gateway_ops.cli.root import app
from tests.mirror.mirrored import ANSWER, FIRST, SECOND, Mirrored, events, mirrored

SECRET = "sk-live-4242424242"
# How long answers are where requests do not say, and what the second model rejects.
DIFFERENT: dict[str, Any] = {
    "first": {"defaults": {"max_tokens": 12}},
    "second": {"defaults": {"max_tokens": 2}, "max_stops": 1},
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    with mirrored(tmp_path_factory.mktemp("mirrored"), **DIFFERENT) as running:
        yield running


def test_equal_answers_are_reported_as_such_in_the_form_of_compare(pair: Mirrored) -> None:
    before = pair.report()["requests"]["sent"]
    assert pair.chat(temperature=0).status_code == 200
    assert pair.chat(temperature=0, stream=True).status_code == 200
    body = {"model": FIRST, "prompt": "x", "max_tokens": ANSWER, "temperature": 0}
    assert pair.client.post("/v1/completions", json=body).status_code == 200
    body = {"model": FIRST, "input": "x", "max_output_tokens": ANSWER, "temperature": 0}
    assert pair.client.post("/v1/responses", json=body).status_code == 200
    found = pair.copied(before + 4)
    assert found["requests"]["equal"] == found["requests"]["sent"] == before + 4
    assert (found["a"]["model"], found["b"]["model"], found["rows"]) == (FIRST, SECOND, [])
    assert all(fact["same"] for fact in found["facts"] if fact["what"] in {"tokenizer", "chat template", "context"})
    assert found["delays"]["b"]["whole_answer_ms"]["p50"] > 0
    assert found["delays"]["a"]["time_to_first_token_ms"]["p50"] > 0
    done = CliRunner().invoke(app, ["compare", "--mirror", pair.internal])
    assert done.exit_code == 0, done.output
    assert f"A: {FIRST}, of {pair.internal}" in done.stdout
    assert f"{before + 4} requests: {before + 4} equal" in done.stdout
    assert CliRunner().invoke(app, ["compare", "--mirror", f"{pair.internal}#{SECOND}"]).exit_code == 2


def test_what_is_drawn_by_chance_is_compared_in_what_chance_does_not_decide(pair: Mirrored) -> None:
    before = pair.report()
    pair.chat()
    found = pair.copied(before["requests"]["sent"] + 1)
    assert found["mirror"]["drawn"] == before["mirror"]["drawn"] + 1
    assert found["requests"]["equal"] == before["requests"]["equal"] + 1
    assert any("set neither temperature 0 nor a seed" in each for each in found["warnings"])


def test_an_answer_that_its_client_did_not_wait_for_is_not_compared(pair: Mirrored) -> None:
    before = pair.report()
    body = {"model": FIRST, "messages": [{"role": "user", "content": "?"}], "max_tokens": 4000, "stream": True}
    with pair.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(answer.iter_bytes())
    found = pair.until(lambda said: said["mirror"]["dropped"].get("client_left"))
    assert found["requests"] == before["requests"]


def test_copies_are_seen_in_metrics_and_in_no_access_log(pair: Mirrored) -> None:
    before = pair.report()["requests"]["sent"]
    pair.chat(temperature=0, max_tokens=3)
    found = pair.copied(before + 1)
    page = httpx.get(f"{pair.internal}/metrics", timeout=20).text
    assert pair.gateway.metric("gateway_mirror_requests_total", 'outcome="equal"', page) == found["requests"]["equal"]
    assert pair.gateway.metric("gateway_mirror_dropped_total", 'reason="client_left"', page) >= 1
    # Nothing of them is counted as a request of the second model.
    assert f'gateway_prompt_tokens_total{{model="{SECOND}"}} 0.0' in page
    assert not [line for line in pair.gateway.log_lines() if '"gateway.access"' in line and f'"{SECOND}"' in line]


def test_a_second_model_that_fails_hangs_or_talks_nonsense_changes_no_answer(pair: Mirrored) -> None:
    before = pair.report()["requests"]["sent"]
    wanted = events(pair.chat(temperature=0, stream=True))
    sent = pair.copied(before + 1)["requests"]["sent"]
    rows = 0
    for mode in ("failing", "corrupt", "spoiled", "well"):
        pair.second.set(mode)
        answers = [pair.chat(temperature=0, stream=True) for _ in range(8)]
        assert [events(each) for each in answers] == [wanted] * 8
        assert all(each.text.endswith("data: [DONE]\n\n") for each in answers)
        found = pair.copied(sent + 8)
        sent = found["requests"]["sent"]
        if mode == "failing":
            assert found["requests"]["refused_by_b"] == 8
            assert found["rows"][-1]["b"]["status"] == 500
        rows = max(rows, len(found["rows"]))
    assert rows >= 8


@pytest.mark.long
def test_a_process_of_copies_that_is_stopped_or_killed_changes_no_answer(tmp_path: Path) -> None:
    with mirrored(tmp_path) as pair:
        wanted = events(pair.chat(temperature=0, stream=True))
        pair.copied(1)
        process = pair.mirror_pid()
        os.kill(process, signal.SIGSTOP)
        assert [events(pair.chat(temperature=0, stream=True)) for _ in range(20)] == [wanted] * 20
        began = time.monotonic()
        assert pair.client.get(f"{pair.internal}/mirror").status_code == 503
        assert pair.client.get(f"{pair.internal}/metrics").status_code == 200
        assert time.monotonic() - began < 15
        pair.second.set("leaving")  # which is no refusal while the process begins
        os.kill(process, signal.SIGKILL)
        assert [events(pair.chat(temperature=0, stream=True)) for _ in range(20)] == [wanted] * 20
        pair.gateway.logged("the process for mirrored requests is restarted")
        pair.gateway.logged("Model 'ensemble' is not ready", count=2)
        assert [events(pair.chat(temperature=0, stream=True)) for _ in range(5)] == [wanted] * 5
        pair.second.set("well")
        found = pair.until(lambda said: said["mirror"]["processes"] == 1)
        assert found["mirror"]["dropped"]["away"] >= 1
        pair.chat(temperature=0)
        requests = pair.copied(1)["requests"]
        assert requests["equal"] == requests["sent"]
        assert "fork()" not in pair.gateway.log.read_text()  # gRPC has nothing to do with it
        again = pair.mirror_pid()
        os.kill(again, signal.SIGSTOP)
        began = time.monotonic()
        pair.gateway.stop()
        assert time.monotonic() - began < 4
    assert again != process
    assert not Path(f"/proc/{again}").exists()


@pytest.mark.long
def test_a_second_model_that_hangs_is_given_up_and_no_copy_waits_without_end(tmp_path: Path) -> None:
    with mirrored(tmp_path, at_once=2, waiting=3, timeout_s=0.7) as pair:
        wanted = events(pair.chat(temperature=0, stream=True))
        pair.copied(1)
        pair.second.set("silent")
        assert [events(pair.chat(temperature=0, stream=True)) for _ in range(10)] == [wanted] * 10
        found = pair.until(
            lambda said: said["requests"]["sent"] + said["mirror"]["dropped"].get("too_many_wait", 0) == 11
        )
        assert found["mirror"]["dropped"]["too_many_wait"] >= 3
        assert {row["b"]["failed"] for row in found["rows"]} == {"timeout"}


def different(pair: Mirrored) -> str:
    """A request that the second model answers in another way, and one that it rejects; returns the report."""
    before = pair.report()["requests"]
    pair.chat(SECRET, temperature=0, max_tokens=None)
    pair.chat(SECRET, temperature=0, stop=[SECRET, "yy"])
    found = pair.copied(before["sent"] + 2)
    assert found["requests"]["differs"] == before["differs"] + 1
    assert found["requests"]["refused_by_b"] == before["refused_by_b"] + 1
    assert "text" in found["differs_in"]
    return pair.client.get(f"{pair.internal}/mirror").text


def test_no_text_is_shown(pair: Mirrored) -> None:
    text = different(pair)
    page = httpx.get(f"{pair.internal}/metrics", timeout=20).text
    assert "abcdefgh" not in text
    assert SECRET not in text + page + pair.gateway.log.read_text()


def test_workers_share_one_report_which_shows_text_where_it_is_asked_for(tmp_path: Path) -> None:
    with mirrored(tmp_path, workers=2, **DIFFERENT, show_text=True) as pair:
        for _ in range(12):
            body = {"model": FIRST, "messages": [{"role": "user", "content": "?"}], "max_tokens": 3, "temperature": 0}
            assert httpx.post(f"{pair.gateway.url}/v1/chat/completions", json=body, timeout=30).status_code == 200
        assert pair.copied(12)["requests"]["equal"] == 12
        pages = [httpx.get(f"{pair.internal}/metrics", timeout=20).text for _ in range(4)]
        counts = {pair.gateway.metric("gateway_mirror_requests_total", 'outcome="equal"', page) for page in pages}
        assert counts == {12.0}
        assert "abcdefgh" in (text := different(pair))
        assert SECRET not in text
