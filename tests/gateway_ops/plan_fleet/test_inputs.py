"""Costs and loads: what is read, what is refused by name, and what is said of where a figure comes from."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_ops.bench.plan import Lengths
from gateway_ops.plan_fleet.curves import Curve, SizingError
from gateway_ops.plan_fleet.engine_costs import engine_costs, read_bench
from gateway_ops.plan_fleet.gateway_costs import TRANSPORTS, measured_costs
from gateway_ops.plan_fleet.loads import LoadRequest, RandomLoad, read_trace
from gateway_ops.plan_fleet.plan import compare
from gateway_ops.plan_fleet.simulation import EngineCell, simulate
from tools import measured_costs as writer


def result(**changes: Any) -> dict[str, Any]:
    """What ``gateway bench --streams 1 --output`` writes, in part: 200 and 101 tokens, 20 ms and 10 ms each."""
    return {
        "plan": {"streams": 1, "rate": None},
        "requests": {"sent": 10, "completed": 10, "failed": {}, "not_sent": 0},
        "tokens": {"prompt": 2000, "completion": 1010},
        "requests_per_s": 0.98,
        "completion_tokens_per_s": 99.0,
        "time_to_first_token_ms": {"mean": 20.0, "p50": 20.0},
        "end_to_end_ms": {"mean": 1020.0},
    } | changes


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def written(text: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    return written


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.001, 1e4)), min_size=1, unique_by=lambda point: point[0]))
def test_a_curve_is_read_as_it_is_written_and_stays_between_its_points(points: list[tuple[int, float]]) -> None:
    curve = Curve.parse(",".join(f"{number}:{value!r}" for number, value in points))
    assert dict(curve.points) == {float(number): value for number, value in points}
    low, high = min(value for _, value in points), max(value for _, value in points)
    for number in (0.5, 1, 3.7, 250, 1e6):
        assert low * (1 - 1e-9) <= curve.at(number) <= high * (1 + 1e-9)


@pytest.mark.parametrize("text", ["", "x", "1:2,", "1:2,1:3", "0:5", "5:-1", "nan", "1:nan", "1:2:3", "inf"])
def test_what_is_no_curve_is_refused(text: str) -> None:
    with pytest.raises(SizingError, match="is not a list of values"):
        Curve.parse(text)


def test_an_engine_is_known_by_results_of_bench(write: Any) -> None:
    alone = read_bench(write(result()))
    # Eight at once, whose prompts take 160 ms of each one's lifetime: 20 of them before its first token.
    many = read_bench(write(result(plan={"streams": 8}, requests_per_s=4.0, end_to_end_ms={"mean": 2000.0})))
    costs = engine_costs([alone, many], None, None, None)
    assert costs.slots == 8
    assert costs.prefill(200) == pytest.approx(0.020)
    assert costs.prefill(1000) == pytest.approx(0.100)
    assert costs.steps[1] == pytest.approx(0.010)
    assert costs.steps[8] == pytest.approx((2.000 - 0.020 - 0.140) / 100)
    assert all(str(path) in "\n".join(costs.sources) for path in (alone.path, many.path))


def test_a_result_by_rate_counts_its_streams_by_littles_law(write: Any) -> None:
    found = read_bench(write(result(plan={"streams": None, "rate": 4.0}, requests_per_s=4.0)), tritons=2)
    assert found.streams == pytest.approx(4.0 / 2 * 1.02)
    assert not found.alone


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "is not a result of gateway bench"),
        ("{", "is not a result of gateway bench"),
        (result(requests={"completed": 0, "failed": {}, "not_sent": 0}), "no request completed"),
        (result(requests={"completed": 9, "failed": {"timeout": 1}, "not_sent": 0}), "requests failed"),
        (result(tokens={"prompt": None, "completion": 1010}), "reported no usage"),
        (result(tokens={"prompt": 2000, "completion": 10}), "--max-tokens"),
    ],
)
def test_a_result_that_tells_too_little_is_refused(write: Any, content: Any, said: str) -> None:
    with pytest.raises(SizingError, match=said):
        read_bench(write(content))


def test_nothing_is_assumed_that_was_not_given(write: Any) -> None:
    many = read_bench(write(result(plan={"streams": 8})))
    with pytest.raises(SizingError, match="the time of a prompt is unknown"):
        engine_costs([many], None, None, None)
    with pytest.raises(SizingError, match="the time of a token is unknown"):
        engine_costs([], 8, None, 5000.0)
    said = engine_costs([], 64, Curve.parse("1:10,8:20"), 5000.0).sources
    assert any("which was not measured" in each for each in said)
    alone = read_bench(write(result()))
    assert any("beyond 1 concurrent requests" in each for each in engine_costs([alone], 64, None, None).sources)
    given = engine_costs([], 64, Curve.parse("10"), 5000.0).sources
    assert any("10, however many run" in each for each in given)
    assert not any("which was not measured" in each for each in given)


def test_a_simulation_of_the_load_that_was_measured_gives_what_was_measured(write: Any) -> None:
    """The results that the simulation itself would have given are given back."""
    truth = engine_costs([], 16, Curve.parse("1:10,16:25"), 10_000.0)
    results = []
    for streams in (1, 4, 16):
        requests = iter(lambda: LoadRequest(0.0, 200, 101), None)
        seen = simulate(EngineCell(truth, 1), requests, skip=80, count=400, streams=streams)
        rate = streams / seen.whole.mean
        first = {"mean": seen.first.mean * 1000, "p50": (seen.first.percentile(50) or 0) * 1000}
        found = result(
            plan={"streams": streams}, requests_per_s=rate, completion_tokens_per_s=rate * 101,
            time_to_first_token_ms=first, end_to_end_ms={"mean": seen.whole.mean * 1000},
        )  # fmt: skip
        results.append(read_bench(write(found)))
    again = engine_costs(results, None, None, None)
    for streams in (1, 4, 16):
        assert again.steps[streams] == pytest.approx(truth.steps[streams], rel=0.06)
    for each in results:
        assert compare(again, each) == pytest.approx(1.0, rel=0.06)


def test_the_gateways_costs_are_those_of_the_benchmarks() -> None:
    assert writer.FILE.read_text() == writer.document()
    for transport in TRANSPORTS:
        costs = measured_costs(transport)
        assert all("make bench" in each for each in costs.sources)
        assert 0 < costs.token_s < costs.request_s < 0.1


@settings(max_examples=20)
@given(st.floats(0.1, 1000), st.sampled_from(["poisson", "even", "bursts"]), st.integers(0, 3))
def test_a_load_has_its_rate_whatever_its_arrivals(rate: float, arrivals: str, seed: int) -> None:
    load = RandomLoad(rate, Lengths(1, 9), Lengths(5, 5), arrivals, burst=4, shared=0.5, prefixes=2, seed=seed)
    found = list(itertools.islice(load.requests(), 4000))
    assert [each.at for each in found] == sorted(each.at for each in found)
    assert len(found) / found[-1].at == pytest.approx(rate, rel=0.15)
    assert {each.prefix for each in found} == {"0", "1"}
    assert all(each.shared <= each.prompt for each in found)


LINES = [
    {"at": 0.0, "prompt_tokens": 100, "completion_tokens": 10, "prefix": "a", "shared_tokens": 80},
    {"at": 1.0, "prompt_tokens": 200, "completion_tokens": 0},
    {"at": 4.0, "prompt_tokens": 300, "completion_tokens": 30},
]


def test_a_trace_is_played_over_and_over(write: Any) -> None:
    trace = read_trace(write("\n".join(json.dumps(line) for line in reversed(LINES)) + "\n\n"))
    assert (trace.rate, trace.mean_prompt) == (pytest.approx(0.5), 200)
    found = list(itertools.islice(trace.requests(), 7))
    assert [each.at for each in found] == [0, 1, 4, 6, 7, 10, 12]
    assert [each.answer for each in found[:3]] == [10, 1, 30]
    assert (found[0].prefix, found[0].shared) == ("a", 80)
    assert trace.faster(4).rate == pytest.approx(2.0)
    half = trace.part(2)
    taken = list(itertools.islice(half.requests(), 2000))
    assert len(taken) / taken[-1].at == pytest.approx(half.rate, rel=0.1)


def test_the_gateways_own_log_is_a_trace(write: Any) -> None:
    line = {"logger": "gateway.access", "message": "request", "status": 200, "time": "2026-11-22T10:00:07+0000"}
    answered = [
        line | {"duration_s": 2.0, "prompt_tokens": 40, "completion_tokens": 9},
        line | {"time": "2026-11-22T10:01:07+0000", "duration_s": 32.0, "prompt_tokens": 50, "completion_tokens": 300},
    ]
    others = [{"logger": "uvicorn.error", "message": "x"}, line | {"status": 404, "duration_s": 0.1}]
    trace = read_trace(write("\n".join(json.dumps(each) for each in [*answered, *others])))
    assert [(each.prompt, each.answer) for each in trace.recorded] == [(40, 9), (50, 300)]
    assert trace.recorded[1].at == pytest.approx(30, abs=1)


def test_a_log_of_several_models_is_sized_for_one(write: Any) -> None:
    line = {"logger": "gateway.access", "duration_s": 2.0, "prompt_tokens": 40}
    lines = [
        line | {"model": model, "time": f"2026-11-22T10:00:0{second}+0000", "completion_tokens": second}
        for second, model in enumerate("ababab", 1)
    ]
    path = write("\n".join(map(json.dumps, lines)))
    with pytest.raises(SizingError, match="several models: choose one with --model: a, b"):
        read_trace(path)
    assert [each.answer for each in read_trace(path, model="b").recorded] == [2, 4, 6]
    with pytest.raises(SizingError, match="has 0 requests"):
        read_trace(path, model="c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 requests"),
        ("nonsense", "line 1 is not JSON"),
        ('{"at": 1}\n', "line 1: prompt_tokens must be a number"),
        ('{"at": -1, "prompt_tokens": 1, "completion_tokens": 1}', "at must be a number"),
        ('{"at": NaN, "prompt_tokens": 1, "completion_tokens": 1}', "at must be a number"),
        (
            '{"at": 1e999, "prompt_tokens": 1, "completion_tokens": 1}',
            "at must be a number",
        ),  # which is read as infinity
        ('{"at": 1, "prompt_tokens": true, "completion_tokens": 1}', "prompt_tokens must be"),
        ('{"at": 1, "prompt_tokens": 1, "completion_tokens": 1, "prefix": "a"}', "shared_tokens must be"),
        ('{"at": 1, "prompt_tokens": 1, "completion_tokens": 1}\n' * 2, "arrive at the same time"),
        ("[1]", "line 1 is not an object"),
        ('{"logger": "gateway.access", "completion_tokens": 3}', "has no time"),
    ],
)
def test_a_line_that_is_no_request_is_named(write: Any, text: str, said: str) -> None:
    with pytest.raises(SizingError, match=said):
        read_trace(write(text))
