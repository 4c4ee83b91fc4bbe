"""The saturated engine in small: what ``make faults`` runs for ten minutes."""

from __future__ import annotations

import pytest

from tests.faults.saturation import saturate

pytestmark = pytest.mark.long


def test_a_saturated_engine_stays_ready_and_alive() -> None:
    outcomes, said = saturate(20)
    assert set(outcomes) == {"200", "429", "left"}
    assert set(said) == {"well"}
    assert said["well"] > 10
