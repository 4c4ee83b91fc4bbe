"""Plans of fleets: that they keep the targets, that fewer would not, and what a growing load exhausts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from gateway.serving.fleet.addresses import MOST_ENDPOINTS
from gateway_ops.bench.plan import Lengths
from gateway_ops.plan_fleet.curves import Curve, SizingError
from gateway_ops.plan_fleet.engine_costs import EngineCosts
from gateway_ops.plan_fleet.gateway_costs import Traffic, fewest_workers, gateway_need, measured_costs
from gateway_ops.plan_fleet.loads import LoadRequest, RandomLoad, RecordedLoad
from gateway_ops.plan_fleet.plan import FleetModel, FleetPlan, Targets

ENGINE = EngineCosts(16, Curve(((1.0, 0.010), (16.0, 0.020))), Curve(((1000.0, 0.050),)))
LOAD = RandomLoad(12.0, Lengths(200, 800), Lengths(50, 150))
FLEET = FleetModel(ENGINE, measured_costs("h2"), Targets(first_s=0.5))


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    return FLEET.plan(LOAD)


def test_the_plan_keeps_the_targets_and_one_triton_less_does_not(plan: FleetPlan) -> None:
    # A request takes 25 ms for its prompt and 100 tokens at a sixteenth of 20 ms: 0.149 s; 12 of them 1.8 engines.
    assert plan.tritons == 3
    assert plan.seen.first.percentile(95) is not None
    assert (plan.seen.first.percentile(95) or 9) <= 0.5
    used = {each.name: each for each in plan.resources}
    engines = used["capacity of the engines"]
    assert engines.used == pytest.approx(12 * (0.025 + 99 * 0.020 / 16), rel=0.05)
    assert engines.used / 2 > FLEET.targets.most_loaded  # of two Tritons
    assert plan.in_flight == pytest.approx(12 * plan.seen.whole.mean)


def test_a_larger_load_never_needs_fewer() -> None:
    plans = [FLEET.plan(replace(LOAD, rate=rate)) for rate in (1.0, 7.0, 25.0)]
    for small, large in itertools.pairwise(plans):
        assert small.tritons < large.tritons
        assert small.need.cores < large.need.cores
        assert small.need.memory_bytes <= large.need.memory_bytes


def test_strict_targets_and_bursts_need_more_than_the_work(plan: FleetPlan) -> None:
    strict = replace(FLEET, targets=Targets(first_s=0.039)).plan(LOAD)
    even = replace(FLEET, targets=Targets(between_s=0.0125)).plan(LOAD)
    assert strict.tritons > plan.tritons
    assert even.tritons > plan.tritons
    assert (even.seen.between.percentile(95) or 9) <= 0.0125
    bursts = FLEET.plan(replace(LOAD, arrivals="bursts", burst=30))
    assert bursts.tritons > plan.tritons


def test_known_prefixes_save_tritons_where_the_balance_meets_them() -> None:
    load = RandomLoad(12.0, Lengths(4000, 4000), Lengths(20, 20), shared=0.9, prefixes=24)
    without = FLEET.plan(load)
    assert without.seen.known == 0
    by_load = replace(FLEET, known_prefixes=10).plan(load)
    by_prefix = replace(FLEET, known_prefixes=10, policy="prefix").plan(load)
    assert by_prefix.tritons < by_load.tritons <= without.tritons
    assert by_prefix.seen.known / by_prefix.seen.whole.count > by_load.seen.known / by_load.seen.whole.count


def test_what_no_number_of_tritons_can_do_is_refused() -> None:
    with pytest.raises(SizingError, match=r"idle Triton the first token takes 0\.0\d+ s.*--ttft"):
        replace(FLEET, targets=Targets(first_s=0.01)).plan(LOAD)
    with pytest.raises(SizingError, match=r"idle Triton a token takes 10\.\d ms.*--between"):
        replace(FLEET, targets=Targets(between_s=0.005)).plan(LOAD)
    with pytest.raises(SizingError, match="spare"):
        Targets(spare=MOST_ENDPOINTS)


@pytest.mark.long
def test_a_fleet_beyond_the_endpoints_of_a_model_has_cells() -> None:
    plan = FLEET.plan(replace(LOAD, rate=1000.0))
    assert plan.tritons > MOST_ENDPOINTS
    assert plan.cells > 1
    assert plan.tritons / plan.cells + plan.spare / plan.cells <= MOST_ENDPOINTS
    assert plan.gateways >= 2 * plan.cells
    assert plan.need.busy <= 0.6
    # By twelve requests a second for three Tritons, less what a larger pool saves.
    assert 1000 * 0.149 / 0.86 <= plan.tritons <= 250


def test_a_trace_is_planned_for_as_a_load_is() -> None:
    recorded = tuple(LoadRequest(number * 0.5, 500, 100) for number in range(200))
    trace = RecordedLoad(recorded, 100.0)
    plan = FLEET.plan(trace.faster(6))
    assert plan.rate == pytest.approx(12.0)
    assert plan.tritons in {2, 3}


def test_gateways_are_two_at_least_and_follow_the_tokens(plan: FleetPlan) -> None:
    assert plan.gateways == 2
    costs = measured_costs("h2")
    cores = 12 * (costs.request_s + 500 * costs.prompt_token_s + 100 * costs.token_s)
    assert plan.need.cores == pytest.approx(cores)
    assert plan.need.workers == plan.gateways * plan.workers
    assert plan.need.memory_bytes >= plan.need.workers * costs.worker_bytes
    # A thousand times the requests: no more workers than their time and their answers demand.
    traffic = Traffic(12_000.0, 500.0, 100.0, 20_000.0)
    fewest = fewest_workers(costs, traffic, 0.6)
    assert gateway_need(costs, traffic, fewest).busy <= 0.6 < gateway_need(costs, traffic, fewest - 1).busy
    assert fewest_workers(costs, replace(traffic, in_flight=5e6), 0.6) == 500
