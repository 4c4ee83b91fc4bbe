"""The simulation beside what queueing theory knows exactly, and beside the real gateway with ``gateway bench``."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_ops.bench.plan import Lengths
from gateway_ops.plan_fleet.curves import Curve
from gateway_ops.plan_fleet.engine_costs import EngineCosts
from gateway_ops.plan_fleet.gateway_costs import Traffic, gateway_need, measured_costs
from gateway_ops.plan_fleet.loads import LoadRequest, RandomLoad
from gateway_ops.plan_fleet.simulation import EngineCell, simulate
from tests.app.scripted import ByteIds, write_tokenizer
from tests.doubles.paced.server import LETTERS, PacedServer
from tests.stack import GATEWAY, GatewayProcess

NO_PROMPT = Curve(((1.0, 0.0),))


def erlang_c(servers: int, offered: float) -> float:
    """The probability that a request of M/M/c waits, for an offered load in servers."""
    term, total = 1.0, 1.0
    for number in range(1, servers):
        term *= offered / number
        total += term
    last = term * offered / servers * servers / (servers - offered)
    return last / (total + last)


def drawn(rate: float, mean: float, seed: int) -> Iterator[LoadRequest]:
    """Poisson arrivals whose answers have exponential lengths, whole numbers of tokens with 1,000 to the mean."""
    source = random.Random(seed)
    now = 0.0
    while True:
        now += source.expovariate(rate)
        yield LoadRequest(now, 1, 2 + round(source.expovariate(1 / mean)))


@pytest.mark.parametrize(("slots", "busy"), [(1, 0.7), (8, 0.8)])
def test_slots_of_a_constant_step_are_an_m_m_c_queue(slots: int, busy: float) -> None:
    service, tokens = 1.0, 1000.0
    costs = EngineCosts(slots, Curve(((1.0, service / tokens),)), NO_PROMPT)
    rate = busy * slots / service
    seen = simulate(EngineCell(costs, 1), drawn(rate, tokens, seed=5), skip=5_000, count=25_000)
    waits = erlang_c(slots, busy * slots)
    expected = waits * service / (slots * (1 - busy))
    assert seen.waited.mean == pytest.approx(expected, rel=0.12)
    assert seen.occupied == pytest.approx(busy * slots, rel=0.03)


@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_prompts_of_one_length_are_an_m_d_1_queue(busy: float) -> None:
    service = 0.1
    costs = EngineCosts(4096, Curve(((1.0, 1e-9),)), Curve(((100.0, service),)))
    load = RandomLoad(busy / service, Lengths(100, 100), Lengths(1, 1))
    seen = simulate(EngineCell(costs, 1), load.requests(), skip=5_000, count=25_000)
    assert seen.waited.mean == pytest.approx(busy * service / (2 * (1 - busy)), rel=0.1)  # Pollaczek, Khinchine
    assert seen.prompts == pytest.approx(busy, rel=0.02)
    assert seen.first.mean == pytest.approx(seen.waited.mean + service, rel=0.01)


@pytest.mark.parametrize("answer", [Lengths(101, 101), Lengths(2, 200)])
def test_a_step_that_grows_with_the_batch_shares_the_engine(answer: Lengths) -> None:
    """M/G/1 with processor sharing, whose mean does not depend on the distribution of lengths."""
    busy, share = 0.7, 1e-3
    costs = EngineCosts(512, Curve(((1.0, share), (512.0, 512 * share))), NO_PROMPT)
    service = ((answer.least + answer.most) / 2 - 1) * share
    load = RandomLoad(busy / service, Lengths(1, 1), answer)
    seen = simulate(EngineCell(costs, 1), load.requests(), skip=5_000, count=25_000)
    assert seen.whole.mean == pytest.approx(service / (1 - busy), rel=0.1)
    assert seen.busy == pytest.approx(busy, rel=0.03)


def test_the_wait_for_a_gateway_is_that_of_m_g_1() -> None:
    """Requests and tokens at one core, played by the same simulation as an engine's prompts."""
    costs = measured_costs("h2")
    traffic = Traffic(rate=80.0, prompt=200.0, answer=100.0, in_flight=100.0)
    need = gateway_need(costs, traffic, 1)
    begin = costs.request_s + 200 * costs.prompt_token_s
    source = random.Random(1)

    def jobs() -> Iterator[LoadRequest]:
        now = 0.0
        while True:
            now += source.expovariate(traffic.rate * (1 + traffic.answer))
            # Lengths in nanoseconds: those of a request, or of a token.
            yield LoadRequest(now, round((begin if source.random() * 101 < 1 else costs.token_s) * 1e9), 1)

    core = EngineCosts(4096, Curve(((1.0, 1.0),)), Curve(((1e9, 1.0),)))
    seen = simulate(EngineCell(core, 1), jobs(), skip=5_000, count=30_000)
    assert seen.prompts == pytest.approx(need.busy, rel=0.04)
    assert seen.waited.mean == pytest.approx(need.wait_s, rel=0.1)


@settings(max_examples=25)
@given(
    engines=st.integers(1, 6),
    slots=st.integers(1, 12),
    rate=st.floats(0.5, 60),
    answer=st.tuples(st.integers(1, 30), st.integers(0, 60)),
    policy=st.sampled_from(("least_in_flight", "power_of_two", "prefix")),
    shared=st.sampled_from([0.0, 0.7]),
    arrivals=st.sampled_from(["poisson", "even", "bursts"]),
)
def test_laws_that_hold_for_every_fleet(
    engines: int, slots: int, rate: float, answer: tuple[int, int], policy: str, shared: float, arrivals: str
) -> None:
    costs = EngineCosts(slots, Curve(((1.0, 0.01), (8.0, 0.02))), Curve(((100.0, 0.02),)))
    lengths = Lengths(answer[0], sum(answer))
    load = RandomLoad(rate, Lengths(50, 150), lengths, arrivals, shared=shared, prefixes=5)
    seen = simulate(EngineCell(costs, engines, policy, known_prefixes=3), load.requests(), skip=50, count=400)
    assert seen.whole.count == seen.first.count == 400
    assert 400 * lengths.least <= seen.tokens <= 400 * lengths.most
    assert 0 <= seen.prompts <= seen.busy <= 1 + 1e-9
    assert 0 <= seen.occupied <= slots + 1e-9
    assert 0 <= seen.waited.mean <= seen.first.mean <= seen.whole.mean
    # No token comes faster than from an engine that nobody else uses.
    if lengths.least > 1:
        assert (seen.between.percentile(50) or 0) >= 0.0099
    assert seen.known == 0 or shared


@settings(max_examples=10)
@given(slots=st.integers(1, 8), streams=st.integers(1, 20), answer=st.integers(2, 40))
def test_streams_that_follow_one_another_fill_the_slots(slots: int, streams: int, answer: int) -> None:
    costs = EngineCosts(slots, Curve(((1.0, 0.01),)), NO_PROMPT)
    requests = iter(lambda: LoadRequest(0.0, 1, answer), None)
    seen = simulate(EngineCell(costs, 1), requests, skip=4 * streams, count=200, streams=streams)
    assert seen.occupied == pytest.approx(min(slots, streams), rel=0.01)
    # Little: requests in flight are their rate times their time.
    rate = min(slots, streams) / ((answer - 1) * 0.01)
    assert seen.whole.mean == pytest.approx(streams / rate, rel=0.02)


def test_the_same_seed_gives_the_same_and_another_does_not() -> None:
    costs = EngineCosts(4, Curve(((1.0, 0.01),)), Curve(((100.0, 0.02),)))
    means = []
    for seed in (1, 1, 2):
        load = RandomLoad(20.0, Lengths(10, 200), Lengths(1, 50), seed=seed)
        means.append(simulate(EngineCell(costs, 2), load.requests(), skip=10, count=500).whole.mean)
    assert means[0] == means[1] != means[2]


SLOTS, STEP_S, ANSWER, STREAMS = 4, 0.02, 26, 12


@pytest.mark.long
def test_streams_over_a_paced_engine_take_what_the_simulation_says(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    letters = ByteIds(tokenizer).of(LETTERS)
    with PacedServer(letters, slots=SLOTS, token_s=STEP_S, log=tmp_path / "triton.log") as triton:
        settings = {
            "GATEWAY_MODEL": "paced", "GATEWAY_TRITON_URL": triton.url, "GATEWAY_TOKENIZER": str(tokenizer),
            "GATEWAY_MAX_SEQ_LEN": "4096",
        }  # fmt: skip
        with GatewayProcess(tmp_path / "gateway.log", **settings) as gateway:
            load = ["--streams", str(STREAMS), "--requests", "72", "--warm-up", "2", "--max-tokens", str(ANSWER)]
            command = [str(GATEWAY), "bench", gateway.url, *load, "--prompt-tokens", "20", "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    costs = EngineCosts(SLOTS, Curve(((1.0, STEP_S),)), Curve(((1.0, 0.0),)))
    requests = iter(lambda: LoadRequest(0.0, 100, ANSWER), None)
    seen = simulate(EngineCell(costs, 1), requests, skip=48, count=72, streams=STREAMS)
    # A busy machine makes the real one slower, never faster.
    whole, first = measured["end_to_end_ms"]["mean"] / 1000, measured["time_to_first_token_ms"]["mean"] / 1000
    assert seen.whole.mean * 0.93 <= whole <= seen.whole.mean * 1.35
    assert seen.first.mean * 0.9 <= first <= seen.first.mean * 1.4
    # Twelve streams over four slots: two thirds of the time is spent waiting for a slot.
    assert seen.waited.mean / seen.whole.mean == pytest.approx(2 / 3, rel=0.02)
