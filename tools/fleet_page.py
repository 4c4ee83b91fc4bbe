"""Writer of the tables of docs/how-to/fleet-sizing.md, by the code behind ``gateway plan-fleet``.

Run: ``python -m tools.fleet_page`` (part of ``make docs``; half a minute).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from gateway_ops.bench.plan import Lengths
from gateway_ops.plan_fleet.curves import Curve
from gateway_ops.plan_fleet.engine_costs import EngineCosts
from gateway_ops.plan_fleet.gateway_costs import measured_costs
from gateway_ops.plan_fleet.loads import RandomLoad
from gateway_ops.plan_fleet.plan import FleetModel, FleetPlan, Targets

PAGE: Final = Path(__file__).parents[1] / "docs" / "how-to" / "fleet-sizing.md"
# benchmarks/gpu.md, model `1b` with sdpa: milliseconds between tokens with 1, 8 and 64 streams, and the first token.
ENGINE: Final = EngineCosts(64, Curve(((1.0, 0.0257), (8.0, 0.0265), (64.0, 0.0521))), Curve(((200.0, 0.036),)))
FLEET: Final = FleetModel(ENGINE, measured_costs("h2"), Targets())
LOAD: Final = RandomLoad(10.0, Lengths(200, 800), Lengths(50, 350))
RATES: Final = (1, 10, 100, 1_000, 10_000, 100_000)
_AGENTS: Final = replace(LOAD, prompt=Lengths(8_000, 8_000), shared=0.9, prefixes=200)
VARIATIONS: Final = (
    ("as above", FLEET, LOAD),
    ("in bursts of 50", FLEET, replace(LOAD, arrivals="bursts", burst=50)),
    ("30 ms between tokens at most", replace(FLEET, targets=Targets(between_s=0.030)), LOAD),
    ("transport `grpcio`", replace(FLEET, gateway=measured_costs("grpcio")), LOAD),
    ("prompts of 8,000 tokens", FLEET, replace(_AGENTS, shared=0.0)),
    ("the same, 90 % of each shared by a 200th, 20 kept by a Triton", replace(FLEET, known_prefixes=20), _AGENTS),
    ("the same, `triton.balance.policy: prefix`", replace(FLEET, known_prefixes=20, policy="prefix"), _AGENTS),
)


def scale_row(rate: int) -> str:
    """The row of a rate in requests a second."""
    plan = FLEET.plan(replace(LOAD, rate=float(rate)))
    tritons = f"{plan.tritons:,} + {plan.spare:,}"
    gateways = f"{plan.gateways:,} x {plan.workers}"
    memory, first = f"{plan.need.memory_bytes / 1e9:,.1f}", plan.resources[0]
    return _row(
        f"{rate:,}", f"{rate * LOAD.mean_answer:,.0f}", f"{plan.in_flight:,.0f}", tritons, f"{plan.cells:,}", gateways,
        f"{plan.need.cores:,.1f}", memory, _first(plan), f"{first.name} ({first.factor:.2f})",
    )  # fmt: skip


def variation_row(name: str, fleet: FleetModel, load: RandomLoad) -> str:
    """The row of a variation."""
    plan = fleet.plan(load)
    gateways = f"{plan.gateways} x {plan.workers}, {plan.need.cores:.2f} cores"
    first = plan.resources[0]
    known = f"{plan.seen.known / plan.seen.whole.count:.0%}"
    exhausted = f"{first.name} ({first.factor:.2f})"
    return _row(name, f"{plan.tritons} + {plan.spare}", gateways, known, _first(plan), exhausted)


def _first(plan: FleetPlan) -> str:
    found = plan.seen.first
    return " / ".join(f"{(found.percentile(share) or 0) * 1000:,.0f}" for share in (50, 95))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def rows_of(page: str, name: str) -> list[str]:
    """The rows of a table of the page, without its head."""
    text = page.partition(f"<!-- {name} -->\n")[2].partition("<!-- end -->")[0]
    return text.strip().splitlines()[2:]


def replaced(page: str, name: str, rows: Iterable[str]) -> str:
    """The page with other rows in a table."""
    pattern = re.compile(rf"(<!-- {name} -->\n[^\n]*\n[^\n]*\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: match[1] + "".join(f"{row}\n" for row in rows) + match[2], page)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    text = replaced(text, "scale", map(scale_row, RATES))
    PAGE.write_text(replaced(text, "variations", (variation_row(*each) for each in VARIATIONS)), encoding="utf-8")
