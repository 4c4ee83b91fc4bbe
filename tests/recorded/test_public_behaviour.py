"""What clients see does not change unawares: requests are answered as they were recorded, byte by byte.

Over HTTP to gateways of their own processes, which nothing but a settings file tells what to do, so that nothing inside
of them is known here. Where a change is meant, ``python -m tests.recorded`` records anew, and its diff is reviewed.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

import pytest

from tests.recorded.exchange import Case, exchange
from tests.recorded.gateways import Gateways, gateways
from tests.recorded.records import AREAS, recorded
from tests.stack import TRANSPORT

CASES = [(area, case) for area, cases in AREAS.items() for case in cases]
CONTEXT = 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with gateways(tmp_path_factory.mktemp("recorded")) as running:
        yield running


@pytest.mark.parametrize(("area", "case"), CASES, ids=[f"{area}: {case.name}" for area, case in CASES])
def test_a_request_is_answered_as_recorded(area: str, case: Case, world: Gateways) -> None:
    if case.paced and os.environ.get(TRANSPORT, "grpcio") != "grpcio":
        pytest.skip("recorded with a transport that hands over each token by itself")
    expected, now = _sections(area)[case.name], exchange(case, world)
    if now != expected:
        pytest.fail(f"{area}: {case.name}\n{_difference(expected, now)}", pytrace=False)


def test_the_records_are_of_these_requests() -> None:
    assert {area: list(_sections(area)) for area in AREAS} == {
        area: [case.name for case in cases] for area, cases in AREAS.items()
    }
    assert len(CASES) >= 200


_read: dict[str, dict[str, str]] = {}


def _sections(area: str) -> dict[str, str]:
    if area not in _read:
        _read[area] = recorded(area)
    return _read[area]


def _difference(expected: str, now: str) -> str:
    lines = difflib.unified_diff(expected.split("\n"), now.split("\n"), "recorded", "now", n=CONTEXT, lineterm="")
    return "\n".join(line if len(line) < 2000 else f"{line[:2000]} ..." for line in lines)
