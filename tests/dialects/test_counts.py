"""Finish reason and usage of sampled answers, against what the engine had to say."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dialects.bench import APART_S, Bench, Truth
from tests.dialects.dialects import Dialect
from tests.dialects.expectations import expected
from tests.dialects.samples import parse_events
from tests.scripted_engine.replay import turn

LIMITS = (1, 2, 5, 12, 30, 60, 100)
AT_ONCE = 8


@dataclass(frozen=True)
class Told:
    """What the gateway said of one answer, and what of it it says is estimated."""

    tokens: int
    finish: str
    tokens_estimated: bool
    finish_estimated: bool

    def deviates(self, truth: Truth) -> bool:
        return (self.tokens, self.finish) != (truth.tokens, truth.finish)

    def is_wrong(self, truth: Truth) -> bool:
        """Whether it deviates where it does not say that it may."""
        tokens = self.tokens != truth.tokens and not self.tokens_estimated
        return tokens or (self.finish != truth.finish and not self.finish_estimated)


def ask(bench: Bench, dialect: Dialect, index: int) -> Told:
    body: dict[str, Any] = {
        "model": dialect.name,
        "messages": [{"role": "user", "content": f"count <{index}>"}],
        "max_tokens": LIMITS[index % len(LIMITS)],
    }
    if dialect.kind != "llmapi":
        body["seed"] = index
    streams = index % 2 and expected(dialect, "stream") != "rejected"
    if streams:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = bench.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not streams:
        return told(answer.json())
    events = parse_events(answer.text)
    choices = [event["choices"][0] for event in events if event["choices"]]
    return told({"choices": [choices[-1]], "usage": events[-1]["usage"]})


def told(body: dict[str, Any]) -> Told:
    choice, usage = body["choices"][0], body["usage"]
    return Told(
        usage["completion_tokens"],
        choice["finish_reason"],
        bool((usage.get("completion_tokens_details") or {}).get("estimated")),
        bool(choice.get("finish_reason_estimated")),
    )


@pytest.mark.parametrize("answers", [pytest.param(40, id="few"), pytest.param(500, id="many", marks=pytest.mark.long)])
def test_counts_and_finish_reasons_are_right_or_marked(
    bench: Bench, dialect: Dialect, answers: int, record_property: Callable[[str, object], None]
) -> None:
    bench.play(turn("count <", sampled=True), chunk=[1, 1, 4, 2])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda index: ask(bench, dialect, index), range(answers)))
    truths = bench.truths(dialect, [f"count <{index}>" for index in range(answers)])
    pairs = list(zip(found, truths, strict=True))
    assert {truth.finish for truth in truths} == {"stop", "length"}
    assert [pair for pair in pairs if pair[0].is_wrong(pair[1])] == []
    marked = [each for each in found if each.tokens_estimated or each.finish_estimated]
    assert bool(marked) == (expected(dialect, "usage") == "estimated")
    if marked:
        off = sum(each.deviates(truth) for each, truth in pairs)
        finish = sum(each.finish != truth.finish for each, truth in pairs)
        record_property(
            "measured", f"{dialect.name}: {off} of {answers} counts estimated wrong, {finish} finish reasons"
        )


def test_a_count_that_a_stop_string_cut_is_exact_or_marked(bench: Bench, dialect: Dialect) -> None:
    bench.play(turn(text="alpha beta gamma delta", pause=APART_S), chunk=[1, 3])
    body = {"model": dialect.name, "messages": [{"role": "user", "content": "count"}], "temperature": 0, "stop": "gam"}
    found = told(bench.http.post("/v1/chat/completions", json=body).json())
    assert (found.finish, found.finish_estimated) == ("stop", False)
    assert found.tokens_estimated == (expected(dialect, "usage after stop") == "estimated")
    assert found.tokens > 0
