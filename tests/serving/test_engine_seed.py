from __future__ import annotations

import pytest

from gateway.serving.engine_requests import engine_seed


def test_seeds_map_by_twos_complement() -> None:
    assert engine_seed(5) == 5
    assert engine_seed(-1) == 2**64 - 1
    assert engine_seed(-(2**63)) == 2**63


def test_no_seed_is_a_random_one() -> None:
    drawn = {engine_seed(None) for _ in range(8)}
    assert len(drawn) > 1
    assert all(0 <= seed < 2**63 for seed in drawn)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_other_numbers_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        engine_seed(seed)
