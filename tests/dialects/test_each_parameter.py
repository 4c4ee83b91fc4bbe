"""Every parameter by every dialect: it has its effect, or it is rejected by its name; there is no third outcome."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.api.openai.parameters.table import PARAMETERS
from tests.dialects.bench import APART_S, Bench
from tests.dialects.dialects import DIALECTS, Dialect, parameters
from tests.dialects.expectations import expected
from tests.dialects.samples import MAX_TOKENS, PROMPT, SAMPLES, TEXT, Sample, Seen, parse_events
from tests.scripted_engine.replay import turn

PLAIN = {endpoint: Sample({}, lambda _: True, endpoint=endpoint) for endpoint in ("chat", "completions")}


def test_every_parameter_has_a_sample() -> None:
    for row in PARAMETERS:
        if row.kind != "impossible":
            assert row.name in SAMPLES or "chat" not in row.endpoints, row.name
            assert f"completions:{row.name}" in SAMPLES or "chat" in row.endpoints, row.name


def post(bench: Bench, dialect: Dialect, sample: Sample, fields: dict[str, Any]) -> httpx.Response:
    is_chat = sample.endpoint == "chat"
    prompt = {"messages": [{"role": "user", "content": PROMPT}]} if is_chat else {"prompt": PROMPT}
    body = {"model": dialect.name, "max_tokens": MAX_TOKENS, **prompt, **fields}
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    return bench.http.post(path, json={name: value for name, value in body.items() if name not in sample.but})


def seen(bench: Bench, dialect: Dialect, answer: httpx.Response, plain: Seen | None = None) -> Seen:
    assert answer.status_code == 200, answer.text
    is_stream = answer.headers["content-type"].startswith("text/event-stream")
    body = {"events": parse_events(answer.text)} if is_stream else answer.json()
    return Seen(body, bench.requests(dialect), plain)


def outcome(bench: Bench, dialect: Dialect, name: str, plain: Seen) -> str:
    """What becomes of a request with a parameter, by one of the words of `expectations.Outcome`, or another."""
    sample = SAMPLES[name]
    bench.play(turn(text=sample.text, pause=APART_S if "stop" in sample.fields else 0))
    answer = post(bench, dialect, sample, dict(sample.fields))
    if answer.status_code == 200:
        found = seen(bench, dialect, answer, plain)
        return "served" if sample.shows(found) else f"without effect: {found}"
    error = answer.json()["error"]
    given = {each.partition(".")[0] for each in (name.removeprefix("completions:"), *sample.fields)}
    is_named = (error["param"] or "").partition(".")[0] in given
    rejected = (answer.status_code, error["type"]) == (400, "invalid_request_error")
    return "rejected" if rejected and is_named else f"{answer.status_code}: {error}"


UNSERVED = [row for row in PARAMETERS if row.kind == "impossible" and "." not in row.name]
BY_BYTES = [each for each in DIALECTS if each.spelling == "bytes"]  # the vocabulary decides about no parameter


@pytest.mark.parametrize("dialect", parameters(BY_BYTES))
def test_each_parameter_has_its_effect_or_is_refused_by_name(bench: Bench, dialect: Dialect) -> None:
    bench.play(turn(text=TEXT))
    plain = {each: seen(bench, dialect, post(bench, dialect, sample, {})) for each, sample in PLAIN.items()}
    found = {name: outcome(bench, dialect, name, plain[sample.endpoint]) for name, sample in SAMPLES.items()}
    wanted = {name: expected(dialect, name).replace("one event", "served") for name in SAMPLES}
    assert {name: (found[name], wanted[name]) for name in SAMPLES if found[name] != wanted[name]} == {}


@pytest.mark.parametrize("dialect", parameters([DIALECTS[0], DIALECTS[-1]]))
@pytest.mark.parametrize("row", UNSERVED, ids=lambda row: row.name)
def test_what_no_engine_can_serve_is_refused_by_name(bench: Bench, dialect: Dialect, row: Any) -> None:
    sample = Sample({}, lambda _: False, endpoint=row.endpoints[0])
    answer = post(bench, dialect, sample, {row.name: {"x": 1}})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == row.name
