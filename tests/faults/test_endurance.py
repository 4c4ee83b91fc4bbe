"""The long runs in small: what ``make endurance`` and ``make faults`` look for in minutes on a large machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.saturation import saturate

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("transport", ["h2", "grpcio"])
def test_nothing_is_lost_or_left(transport: str) -> None:
    command = [sys.executable, "-m", "tests.faults.endurance", "--clients", "1", "--transport", transport]
    command += ["--cancels", "300", "--fuzzed", "1000", "--spoiled", "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def test_a_saturated_engine_stays_ready_and_alive() -> None:
    outcomes, said = saturate(20)
    assert set(outcomes) == {"200", "429", "left"}
    assert set(said) == {"well"}
    assert said["well"] > 10
