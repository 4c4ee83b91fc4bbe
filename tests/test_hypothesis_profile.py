"""The settings of all property tests."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@given(st.just(0.25))
@settings(max_examples=1)
def test_an_example_may_be_slow(seconds: float) -> None:
    """Hypothesis fails one of 0.2 s, which a busy machine makes of any."""
    time.sleep(seconds)
