"""The settings of all property tests."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@given(st.just(0.25))
@settings(max_examples=1)
def test_an_example_may_be_slow(seconds: float) -> None:
    """Hypothesis fails one of 0.2 s, which a busy machine makes of any."""
    time.sleep(seconds)


def test_the_short_run_and_one_with_a_seed_take_the_same_examples_every_time(pytestconfig: pytest.Config) -> None:
    def examples() -> list[int]:
        seen: list[int] = []

        @given(st.integers())
        @settings(max_examples=20)
        def look(number: int) -> None:
            seen.append(number)

        look()
        return seen

    seeded = pytestconfig.getoption("--hypothesis-seed") is not None
    assert (examples() == examples()) == (seeded or pytestconfig.getoption("markexpr") == "not long")
